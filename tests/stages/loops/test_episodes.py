"""Episodes as they are played; what is learned from them is in `test_episodes_rl`."""

import contextlib
import math
import os
import time
from asyncio import CancelledError
from dataclasses import replace

import pytest
import torch
from several_processes import in_processes
from tiny_checkpoints import EOS, load, load_exact
from tiny_rollouts import decode, make_sampler
from token_episodes import (
    CALL,
    ENDS,
    NEWLINE,
    EvenGame,
    NumberRenderer,
    ToolGame,
    make_player,
    make_rows,
)

from stages.engines.loading import DataParallelSampler
from stages.environments.environment import Reply
from stages.environments.replay import replay_episode
from stages.loops import episodes, rollouts
from stages.sampler import Sample
from stages.seeding import derive_seed

ROWS = make_rows(2)


class ScriptedSampler:
    """Replies by turn: the same for every episode, cut at its limit; and what was requested."""

    def __init__(self, *replies):
        self.replies = replies
        self.requests = []

    def sample(self, prompts, seeds, *, num_samples, temperature, max_new_tokens):
        reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
        self.requests.append((prompts, seeds, num_samples))
        return [[cut(reply, limit)] * num_samples for limit in max_new_tokens]


def cut(ids, limit):
    reason = "length" if len(ids) > limit else "stop"
    ids = list(ids[:limit])
    return Sample(token_ids=ids, logprobs=[-float(i) for i in ids], finish_reason=reason)


def play(sampler, factory=EvenGame, rows=ROWS, group_size=2, step=5, **limits):
    player = make_player(factory, **limits)
    return player.play(
        sampler, decode, rows, temperature=1.0, group_size=group_size, step=step, seed=3
    )


def test_an_episode_by_hand():
    sampler = ScriptedSampler([6, EOS], [7, 9, EOS], [4, EOS])
    batch = play(sampler)
    assert batch.groups == [0, 0, 1, 1]
    assert batch.numbers == [0, 1, 0, 1]
    episode, sample = batch.episodes[1], batch.samples[1]
    seed = derive_seed(3, "environment", 5, "p0")
    assert [episode.env_seed for episode in batch.episodes[:2]] == [seed, seed]
    first, second = 8 + (seed + 1) % 16, 8 + (seed + 2) % 16
    answers = [[NEWLINE, first, 11], [NEWLINE, second, 12]]
    assert episode.token_ids == [6, EOS, *answers[0], 7, 9, EOS, *answers[1], 4, EOS]
    assert episode.sampled == [(0, 2), (5, 8), (11, 13)]
    assert sample.token_ids == [6, EOS, 7, 9, EOS, 4, EOS]
    assert sample.logprobs == [-6.0, -1.0, -7.0, -9.0, -1.0, -4.0, -1.0]
    assert sample.insertions == ((2, tuple(answers[0])), (5, tuple(answers[1])))
    assert episode.rewards == [0.5, 0.0, 0.5]
    assert (episode.reward, episode.success, episode.ending) == (1.0, False, "done")
    roles = [message["role"] for message in episode.messages]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant"]
    assert batch.texts[1] == decode(episode.token_ids)
    # One request for a group's first turn, with the seed of a completion without an environment;
    # then one for each episode, from where it is.
    (_, seeds, number), (prompts, later_seeds, later_number), _ = sampler.requests
    assert (number, later_number) == (2, 1)
    assert seeds == [derive_seed(3, "rollout", 5, "p0"), derive_seed(3, "rollout", 5, "p1")]
    assert prompts[1] == [*batch.prompts[0].prompt_ids, 6, EOS, *answers[0]]
    assert later_seeds[1] == derive_seed(3, "rollout", 5, "p0", 1, 1)
    assert len(set(later_seeds)) == 4
    paid = episodes.reward_turns(batch)
    assert paid.step_rewards[1].tolist() == [0, 0.5, 0, 0, 0, 0, 0]
    assert paid.step_ends[1].tolist() == [False, True, False, False, True, False, False]
    assert paid.totals == [0.5] * 4


@pytest.mark.parametrize(
    ("factory", "replies", "limits", "ending", "num_turns"),
    [
        (EvenGame, [[6, EOS]], {}, "done", 3),
        (EvenGame, [[6, EOS]], {"max_turns": 2}, "turns", 2),
        (EvenGame, [[6, EOS], [4, 4, 4, 4, EOS]], {}, "tokens", 2),
        # The prompt has 2 tokens, a turn 2, the answer 3: the second turn has room for one token,
        (EvenGame, [[6, EOS]], {"max_tokens": 8}, "tokens", 2),
        # or none.
        (EvenGame, [[6, EOS]], {"max_tokens": 7}, "tokens", 1),
        (ToolGame, [[CALL, CALL, EOS], [CALL, EOS]], {"max_tool_calls": 2}, "tool_calls", 2),
        (ToolGame, [[6, EOS], [31, EOS]], {}, "parse_error", 2),
    ],
)
def test_endings_by_name(factory, replies, limits, ending, num_turns):
    batch = play(ScriptedSampler(*replies), factory, rows=ROWS[:1], **limits)
    episode, sample = batch.episodes[0], batch.samples[0]
    assert episode.ending == ending
    assert len(episode.sampled) == len(episode.rewards) == num_turns
    assert (episode.error is None) == (ending != "parse_error")
    assert (sample.finish_reason == "length") == (ending == "tokens")
    # What the policy wrote last is last, whatever was answered.
    assert episode.token_ids[-1] == sample.token_ids[-1]
    assert len(episode.prompt_ids + episode.token_ids) <= limits.get("max_tokens", 60)
    if ending not in ("done", "turns"):
        assert episode.rewards[-1] == 0 or num_turns == 1
    metrics = rollouts.list_episode_metrics(batch.episodes)
    assert metrics[f"ending/{ending}"] == 1
    assert metrics["episode/failed"] == 0
    assert metrics["episode/turns"] == num_turns
    assert metrics["episode/tool_calls"] == (3 if ending == "tool_calls" else 0)


def paying_at_the_end(game):
    """A game that pays 0.25 for each message it has read, where a limit ends the episode."""

    class Paying(game):
        num_read = 0

        def step(self, message):
            self.num_read += 1
            return replace(super().step(message), reward=0.0)

        def finish(self):
            return 0.25 * self.num_read

    return Paying


@pytest.mark.parametrize(
    ("game", "replies", "limits", "ending", "rewards"),
    [
        (EvenGame, [[6, EOS]], {}, "done", [0, 0, 0]),
        (EvenGame, [[6, EOS]], {"max_turns": 2}, "turns", [0, 0.5]),
        (EvenGame, [[6, EOS], [4, 4, 4, 4, EOS]], {}, "tokens", [0, 0.25]),
        (EvenGame, [[6, EOS]], {"max_tokens": 8}, "tokens", [0, 0.25]),
        (EvenGame, [[6, EOS]], {"max_tokens": 7}, "tokens", [0.25]),
        (ToolGame, [[CALL, EOS]], {"max_tool_calls": 1}, "tool_calls", [0, 0.25]),
        (ToolGame, [[6, EOS], [31, EOS]], {}, "parse_error", [0, 0.25]),
    ],
)
def test_an_environment_may_pay_for_an_episode_that_a_limit_ends(
    game, replies, limits, ending, rewards
):
    factory, row = paying_at_the_end(game), ROWS[0]
    batch = play(ScriptedSampler(*replies), factory, rows=ROWS[:1], **limits)
    for episode in batch.episodes:
        assert (episode.ending, episode.rewards) == (ending, rewards)
        assert episode.reward == sum(rewards)
    first = batch.episodes[0]
    assert replay_episode(factory(), first, row) is None
    if ending != "done":
        other = replace(first, rewards=[*rewards[:-1], rewards[-1] + 1])
        assert replay_episode(factory(), other, row).place == "reward"


def test_what_an_environment_pays_at_a_limit_is_a_finite_number():
    class Endless(EvenGame):
        def finish(self):
            return math.inf

    with pytest.raises(ValueError, match="expected a finite number as reward, found inf"):
        play(ScriptedSampler([6, EOS]), Endless, max_turns=2)


def failing(what, row="p1", turn=2):
    """The game, but in one turn (0: the start) of the episodes of a row."""

    class Failing(EvenGame):
        def start(self, row_, seed):
            self.id = row_["id"]
            if self.id == row and turn == 0:
                return what(super().start(row_, seed))
            return super().start(row_, seed)

        def step(self, message):
            reply = super().step(message)
            return what(reply) if (self.id, self.turn) == (row, turn) else reply

    return Failing


def explode(_):
    raise KeyError("tower")


def cancel(_):
    raise CancelledError


def pay_text(reply):
    object.__setattr__(reply, "reward", "1")
    return reply


def spin(_):
    while True:
        with contextlib.suppress(Exception):  # as an environment might
            math.sqrt(2)


FAILURES = [
    (explode, "KeyError: 'tower' (test_episodes.py, line"),
    (
        lambda reply: replace(reply, reward=math.nan),
        "expected a finite number as reward, found nan",
    ),
    (lambda reply: replace(reply, reward=1e39), "found 1e+39"),
    (pay_text, "found '1'"),
    (lambda _: (1.0, True), "expected a Reply"),
    (lambda _: Reply(), "found neither"),
    (lambda _: Reply(messages=[{"content": "5"}]), "messages with a role"),
    (lambda _: Reply(messages=[{"role": "assistant", "content": "5"}]), "one of the assistant"),
    (lambda _: Reply(messages=[{"role": "user", "content": {5}}]), "TypeError"),
    (lambda _: Reply(messages=[{"role": "user", "content": "five"}]), "cannot be rendered"),
    # Half of an emoji, cut off by a tool: no tokenizer takes it, and no file in UTF-8.
    (lambda _: Reply(messages=[{"role": "user", "content": "\ud83d"}]), "surrogates not allowed"),
    (cancel, "CancelledError"),
    (spin, "no answer within 0.2 s"),
    (lambda _: time.sleep(9), "no answer within 0.2 s"),
]


@pytest.mark.parametrize(("what", "error"), FAILURES)
def test_an_environment_that_fails_is_no_reward_of_0(what, error):
    game = failing(what)
    sampler = ScriptedSampler([6, EOS])
    batch = play(sampler, game, group_size=1, max_failed_share=0.5, timeout_seconds=0.2)
    good, bad = batch.episodes
    assert (good.ending, good.rewards) == ("done", [0.5, 0.25, 0.5])
    assert bad.ending == "environment_error"
    assert error in bad.error
    assert not bad.success
    assert len(bad.rewards) == len(bad.sampled) == 2
    assert batch.failed().tolist() == [False, True]
    metrics = rollouts.summarise_rollouts(batch, episodes.reward_turns(batch), [True, False])
    assert metrics["episode/failed"] == 0.5
    assert metrics["reward/mean"] == 1.25
    assert metrics["reward/accuracy"] == 1
    assert metrics["episode/turns"] == 3
    with pytest.raises(ValueError, match="1 of 2 episodes, more than max_failed_share 0 ") as stop:
        play(sampler, game, group_size=1, max_failed_share=0.0, timeout_seconds=0.2)
    assert error in str(stop.value)
    assert "Episode 0 of row 'p1'" in str(stop.value)
    assert "in turn 2" in str(stop.value)


def closing(what, closed, row="p1", turn=2):
    """The game, failing there, whose `close` notes the row and the turn, and then fails, too."""

    class Closing(failing(what, row, turn)):
        def close(self):
            closed.append((self.id, self.turn))
            explode(None)

    return Closing


@pytest.mark.parametrize("what", [explode, spin])
@pytest.mark.parametrize("share", [0.5, 0.0])
def test_every_environment_is_closed_once_and_what_close_raises_is_only_logged(what, share, caplog):
    sampler, closed = ScriptedSampler([6, EOS]), []
    game, limits = closing(what, closed), {"max_failed_share": share, "timeout_seconds": 0.2}
    if share:
        batch = play(sampler, game, group_size=1, **limits)
        assert [episode.rewards for episode in batch.episodes] == [[0.5, 0.25, 0.5], [0.5, 0.0]]
        assert batch.failed().tolist() == [False, True]
        assert closed == [("p1", 2), ("p0", 3)]  # each when its episode has ended
    else:
        with pytest.raises(ValueError, match="1 of 2 episodes"):
            play(sampler, game, group_size=1, **limits)
        assert sorted(closed) == [("p0", 2), ("p1", 2)]
    assert len([entry for entry in caplog.messages if "KeyError: 'tower'" in entry]) == 2


def test_an_environment_is_closed_whose_start_failed_or_that_was_only_checked():
    closed = []
    game = closing(explode, closed, turn=0)
    play(ScriptedSampler([6, EOS]), game, group_size=1, max_failed_share=0.5)
    assert closed == [("p1", 0), ("p0", 3)]
    make_player(game).check(ROWS[0])
    assert closed[2:] == [("p0", 0)]


def test_of_few_episodes_one_may_fail_where_any_may():
    game = failing(explode)
    batch = play(ScriptedSampler([6, EOS]), game, group_size=1, max_failed_share=0.05)
    assert batch.failed().tolist() == [False, True]
    with pytest.raises(ValueError, match="1 of 1 episodes"):
        play(ScriptedSampler([6, EOS]), game, make_rows(2)[1:], group_size=1)


def test_a_start_that_fails_leaves_the_others_as_they_are():
    sampler = make_sampler(load("llama"), ENDS)
    expected = play(sampler, group_size=2)
    for what in (explode, lambda start: ([], start[1]), spin):
        game = failing(what, turn=0)
        batch = play(sampler, game, group_size=2, max_failed_share=0.5, timeout_seconds=0.2)
        assert batch.episodes[:2] == expected.episodes[:2]
        assert [len(sample.token_ids) for sample in batch.samples[2:]] == [0, 0]
        assert [group.indices for group in rollouts.make_groups(batch, None, 64)] == [[0, 1]]
        counts = rollouts.count_work(batch, episodes.reward_turns(batch))
        tokens = [len(e.prompt_ids + e.token_ids) for e in batch.episodes[:2]]
        prompt = len(batch.prompts[0].prompt_ids)
        assert counts["work/policy/sampled/positions"] == sum(tokens) - prompt - 2


def test_a_start_without_room_for_a_turn_is_a_failure():
    with pytest.raises(ValueError, match="start has 2 tokens, the limit max_tokens is 2"):
        play(ScriptedSampler([6, EOS]), max_tokens=2)


def test_members_of_a_group_that_start_from_different_messages_are_refused():
    class Random(EvenGame):
        count = 0

        def start(self, row, seed):
            Random.count += 1
            return super().start(row | {"numbers": f"5 {4 + Random.count}"}, seed)

    with pytest.raises(ValueError, match="another start than another episode of this row"):
        play(ScriptedSampler([6, EOS]), Random)


def test_the_run_stops_before_every_episode_has_hung():
    class Hanging(EvenGame):
        def start(self, row, seed):
            time.sleep(9)

    began = time.monotonic()
    with pytest.raises(ValueError, match="failed in 2 of 20 episodes"):
        play(ScriptedSampler([6, EOS]), Hanging, group_size=10, timeout_seconds=0.1)
    assert time.monotonic() - began < 1


def test_an_environment_cannot_change_rows_and_messages():
    class Changing(EvenGame):
        def start(self, row, seed):
            messages, tools = super().start(row, seed)
            row["numbers"] = "5"
            self.messages = messages
            return messages, tools

        def step(self, message):
            self.messages.clear()
            reply = super().step(message)
            message.clear()
            return reply

    rows = make_rows(2)
    assert (
        play(ScriptedSampler([6, EOS]), Changing, rows).episodes
        == play(ScriptedSampler([6, EOS])).episodes
    )
    assert rows == ROWS


def test_group_members_start_alike_and_sample_differently_and_an_episode_is_a_function_of_its_row():
    sampler = make_sampler(load("llama").double(), ENDS)
    batch = play(sampler, group_size=4)
    for group in (batch.episodes[:4], batch.episodes[4:]):
        assert len({item.env_seed for item in group}) == 1
        assert len({tuple(item.token_ids) for item in group}) > 1
    alone = play(sampler, rows=ROWS[1:], group_size=4)
    assert alone.episodes == batch.episodes[4:]
    later = play(sampler, group_size=4, step=6)
    assert {e.env_seed for e in later.episodes}.isdisjoint(e.env_seed for e in batch.episodes)
    # Turns of one episode have streams of their own, too.
    assert len({tuple(batch.samples[0].token_ids[i:]) for i in (0, 1, 2)}) == 3


class Erratic(EvenGame):
    """Its messages are never twice the same."""

    def step(self, message):
        reply = super().step(message)
        content = " ".join(str(16 + byte % 16) for byte in os.urandom(6))
        messages = [{"role": "user", "content": content} for _ in reply.messages]
        return replace(reply, messages=messages)


def test_in_several_processes_episodes_are_those_of_one_and_environments_those_of_the_first():
    inner = make_sampler(load_exact("llama"), ENDS)
    shared = DataParallelSampler(inner)
    sizes = {"rows": make_rows(5), "group_size": 3}

    def work():
        actual = [play(shared, factory, **sizes).episodes for factory in (EvenGame, Erratic)]
        parts = [None, None]
        torch.distributed.all_gather_object(parts, actual)
        return parts

    first, second = in_processes(2, work)
    assert first == second
    even, erratic = first
    expected = play(inner, **sizes).episodes
    assert [item.token_ids for item in even] == [item.token_ids for item in expected]
    assert [item.messages for item in even] == [item.messages for item in expected]
    assert max(len(item.sampled) for item in erratic) == 3
    # What a session saves changes no episode.
    plain = play(WithoutSession(inner), **sizes).episodes
    assert [item.token_ids for item in plain] == [item.token_ids for item in expected]


class WithoutSession:
    """Sampler that reads each turn's whole text."""

    def __init__(self, sampler):
        self.sample = sampler.sample


def test_episodes_cut_in_several_steps_in_a_row_stop_the_run():
    batch = play(ScriptedSampler([6, 6, 6, 6, EOS]))
    assert batch.truncated().all()
    with pytest.raises(ValueError, match="all episodes of 3 steps in a row"):
        rollouts.count_truncated_steps(batch, 2)
    broken = [replace(batch.episodes[0], ending="environment_error"), *batch.episodes[1:]]
    others = [replace(batch.samples[0], finish_reason="stop"), *batch.samples[1:]]
    batch = replace(batch, episodes=broken, samples=others)
    assert rollouts.count_truncated_steps(batch, 1) == 2, "one that failed ended nothing by itself"


def test_rows_of_files_hold_the_episode():
    batch = play(ScriptedSampler([6, EOS]))
    rows = rollouts.make_rows(batch, 5, torch.ones(4), [True, False, True, False])
    assert [row.correct for row in rows] == [True, False, True, False]
    record = episodes.Episode(**rows[1].episode)
    assert record == batch.episodes[1]


@pytest.mark.parametrize("rows", [[], [ROWS[0], ROWS[0]], [{"numbers": "5"}], [{"id": 1}]])
def test_rows_need_ids(rows):
    with pytest.raises(ValueError, match="expected rows with an `id` each"):
        episodes.make_task(make_player(), rows)


def test_what_cannot_start_or_be_rendered_is_refused_before_training():
    class Refusing(NumberRenderer):
        def check(self, tools):
            raise ValueError("a template that loses tools")

    with pytest.raises(ValueError, match="from row 'p0': KeyError: 'tower'"):
        episodes.make_task(make_player(failing(explode, row="p0", turn=0)), ROWS)
    with pytest.raises(ValueError, match="limit max_tokens is 2"):
        episodes.make_task(make_player(max_tokens=2), ROWS)
    refusing = replace(make_player(), renderer=Refusing())
    with pytest.raises(ValueError, match="loses tools"):
        episodes.make_task(refusing, ROWS)
    one_turn = replace(make_player(max_turns=1), renderer=Refusing())
    episodes.make_task(one_turn, ROWS)
