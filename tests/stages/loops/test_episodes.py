"""Episodes: how they are played and end, what fails, and what is learned from them.

The gradient of episodes of several turns is in `test_definitions`.
"""

import contextlib
import math
import time
from asyncio import CancelledError
from dataclasses import replace

import every_loop
import presets
import pytest
import torch
from tiny_checkpoints import EOS, load
from tiny_rollouts import decode, make_prompts, make_sampler
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

from stages.environments.environment import Reply
from stages.environments.replay import replay_episode
from stages.loops import episodes, rl, rollouts
from stages.loops.method import GroupRlConfig
from stages.records.episodes import FAILED
from stages.rewards.completion_rewards import CompletionRewards
from stages.sampler import Sample
from stages.seeding import derive_seed

ROWS = make_rows(2)


class ScriptedSampler:
    """Replies by turn: the same for every episode, cut at its limit; and what was requested."""

    def __init__(self, *replies):
        self.replies, self.requests = replies, []

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


TURN = [6, EOS]


def test_an_episode_by_hand():
    sampler = ScriptedSampler(TURN, [7, 9, EOS], [4, EOS])
    batch = play(sampler)
    assert (batch.groups, batch.numbers) == ([0, 0, 1, 1], [0, 1, 0, 1])
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
    assert roles == ["user", "assistant"] * 3
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
    rows = rollouts.make_rows(batch, 5, torch.ones(4), [True, False, True, False])
    assert [row.correct for row in rows] == [True, False, True, False]
    assert episodes.Episode(**rows[1].episode) == episode


class Paying(ToolGame):
    """Pays 0.25 for each message that it has read, where a limit ends the episode."""

    num_read = 0

    def start(self, row, seed):
        messages, tools = super().start(row, seed)
        # A call in the start is none of the policy's.
        return [*messages, {"role": "user", "content": "9", "tool_calls": [{}]}], tools

    def step(self, message):
        self.num_read += 1
        return replace(super().step(message), reward=0.0)

    def finish(self):
        return 0.25 * self.num_read


@pytest.mark.parametrize(
    ("replies", "limits", "ending", "rewards"),
    [
        ([TURN], {}, "done", [0, 0, 0]),
        ([TURN], {"max_turns": 2}, "turns", [0, 0.5]),
        ([TURN, [4, 4, 4, 4, EOS]], {}, "tokens", [0, 0.25]),
        # The start has 3 tokens, a turn 2, the answer 3: the second turn has room for one token,
        ([TURN], {"max_tokens": 9}, "tokens", [0, 0.25]),
        # or none.
        ([TURN], {"max_tokens": 8}, "tokens", [0.25]),
        ([[CALL, CALL, EOS], [CALL, EOS]], {"max_tool_calls": 2}, "tool_calls", [0, 0.25]),
        ([[CALL, EOS], [CALL, EOS]], {"max_tool_calls": 2, "max_turns": 2}, "turns", [0, 0.5]),
        ([TURN, [31, EOS]], {}, "parse_error", [0, 0.25]),
        ([[31, EOS], TURN], {"on_bad_call": "reply"}, "turns", [0, 0, 0.5]),
        ([TURN, [31, EOS]], {"on_bad_call": "reply", "max_turns": 2}, "turns", [0, 0.25]),
    ],
)
def test_each_ending_and_what_an_environment_pays_where_a_limit_ends_an_episode(
    replies, limits, ending, rewards
):
    batch = play(ScriptedSampler(*replies), Paying, rows=ROWS[:1], **limits)
    episode, sample = batch.episodes[0], batch.samples[0]
    assert (episode.ending, episode.rewards) == (ending, rewards)
    assert episode.reward == sum(rewards)
    assert len(episode.sampled) == len(rewards)
    assert (episode.error is None) == (ending != "parse_error")
    assert (sample.finish_reason == "length") == (ending == "tokens")
    # What the policy wrote last is last, whatever was answered.
    assert episode.token_ids[-1] == sample.token_ids[-1]
    assert len(episode.prompt_ids + episode.token_ids) <= limits.get("max_tokens", 60)
    metrics = rollouts.list_episode_metrics(batch.episodes)
    assert metrics[f"ending/{ending}"] == 1
    assert (metrics["episode/failed"], metrics["episode/turns"]) == (0, len(rewards))
    calls = sum(token == CALL for turn in replies for token in turn)
    assert metrics["episode/tool_calls"] == calls
    replied = "on_bad_call" in limits
    assert metrics["episode/tool_errors"] == replied
    replies = [m["content"] for m in episode.messages if m["role"] == "tool"]
    assert replies == ["error: 31"] * replied
    assert replay_episode(Paying(), episode, ROWS[0]) is None
    if replied:
        wrong = replace(episode, rewards=[*rewards[:-1], rewards[-1] + 1])
        assert replay_episode(Paying(), wrong, ROWS[0]).place == "reward"


# --- Failures


def failing(what, row="p1", turn=2, closed=None):
    """The game, but in one turn (0: the start) of the episodes of a row.

    With a list `closed`, its `close` notes the row and the turn, and then fails, too.
    """

    class Failing(EvenGame):
        def start(self, row_, seed):
            self.id = row_["id"]
            start = super().start(row_, seed)
            return what(start) if (self.id, turn) == (row, 0) else start

        def step(self, message):
            reply = super().step(message)
            return what(reply) if (self.id, self.turn) == (row, turn) else reply

    class Closing(Failing):
        def close(self):
            closed.append((self.id, self.turn))
            explode(None)

    return Failing if closed is None else Closing


def explode(_):
    raise KeyError("tower")


def cancel(_):
    raise CancelledError


def spin(_):
    while True:
        with contextlib.suppress(Exception):  # as an environment might
            math.sqrt(2)


def say(message):
    return lambda _: Reply(messages=[message])


FAILURES = {
    "raises": (explode, "tower"),
    "cancelled": (cancel, "CancelledError"),
    "nan": (lambda reply: replace(reply, reward=math.nan), "nan"),
    "no reply": (lambda _: (1.0, True), "Reply"),
    "not rendered": (say({"role": "user", "content": "five"}), "rendered"),
    # Half of an emoji, cut off by a tool: no tokenizer takes it, and no file in UTF-8.
    "surrogate": (say({"role": "user", "content": "\ud83d"}), "surrogates"),
    "spins": (spin, "0.2 s"),
    "sleeps": (lambda _: time.sleep(9), "0.2 s"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_an_environment_that_fails_is_no_reward_of_0(name):
    what, error = FAILURES[name]
    game, sampler = failing(what), ScriptedSampler(TURN)
    limits = {"timeout_seconds": 0.2, "success_reward": 0.4}  # reached before the failure
    batch = play(sampler, game, group_size=1, max_failed_share=0.5, **limits)
    good, bad = batch.episodes
    assert (good.ending, good.success, good.rewards) == ("done", True, [0.5, 0.25, 0.5])
    assert (bad.ending, bad.success) == ("environment_error", False)
    assert bad.reward >= 0.4
    assert len(bad.rewards) == len(bad.sampled) == 2
    assert batch.failed().tolist() == [False, True]
    metrics = rollouts.summarise_rollouts(batch, episodes.reward_turns(batch), [True, False])
    expected = {
        "episode/failed": 0.5,
        "reward/mean": 1.25,
        "reward/accuracy": 1,
        "episode/turns": 3,
    }
    assert {key: metrics[key] for key in expected} == expected
    turned = replace(batch, episodes=[bad, good], samples=batch.samples[::-1])
    metrics = rollouts.summarise_rollouts(turned, episodes.reward_turns(turned), [False, True])
    assert metrics["reward/accuracy"] == 1
    with pytest.raises(ValueError, match=rf"'p1'.* 2: .*{error}"):
        play(sampler, game, group_size=1, max_failed_share=0.0, timeout_seconds=0.2)


@pytest.mark.parametrize(
    ("what", "turn", "share", "closed"),
    [
        (explode, 2, 0.5, [("p1", 2), ("p0", 3)]),  # each when its episode has ended
        (spin, 2, 0.5, [("p1", 2), ("p0", 3)]),
        (explode, 2, 0.0, [("p0", 2), ("p1", 2)]),
        (explode, 0, 0.5, [("p1", 0), ("p0", 3)]),
    ],
)
def test_every_environment_is_closed_once_and_what_close_raises_is_only_logged(
    what, turn, share, closed, caplog
):
    seen = []
    game = failing(what, turn=turn, closed=seen)
    limits = {"max_failed_share": share, "timeout_seconds": 0.2}
    context = contextlib.nullcontext() if share else pytest.raises(ValueError, match="1 of 2")
    with context:
        play(ScriptedSampler(TURN), game, group_size=1, **limits)
    assert sorted(seen) == sorted(closed)
    assert len([entry for entry in caplog.messages if "tower" in entry]) == 2
    make_player(game).check(ROWS[0])
    assert seen[2:] == [("p0", 0)]


def test_of_few_episodes_one_may_fail_where_any_may_but_not_all_and_none_that_hang_begin_then():
    game, started = failing(explode), []
    batch = play(ScriptedSampler(TURN), game, group_size=1, max_failed_share=0.05)
    assert batch.failed().tolist() == [False, True]
    with pytest.raises(ValueError, match="1 of 1"):
        play(ScriptedSampler(TURN), game, make_rows(2)[1:], group_size=1, max_failed_share=0.9)

    class Hanging(EvenGame):
        def start(self, row, seed):
            started.append(row["id"])
            time.sleep(9)

    with pytest.raises(ValueError, match="2 of 20"):
        play(ScriptedSampler(TURN), Hanging, group_size=10, timeout_seconds=0.1)
    assert len(started) == 2


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


class Random(EvenGame):
    """Its starts differ."""

    count = 0

    def start(self, row, seed):
        Random.count += 1
        return super().start(row | {"numbers": f"5 {4 + Random.count}"}, seed)


class Endless(EvenGame):
    def finish(self):
        return math.inf


class Refusing(NumberRenderer):
    def check(self, tools):
        raise ValueError("a template that loses tools")


class Strict(NumberRenderer):
    def render_new(self, messages, new, tools):
        raise ValueError("a result that answers no call")


def with_renderer(renderer, *inputs, **limits):
    return replace(make_player(*inputs, **limits), renderer=renderer)


def make_task(player, rows):
    return lambda: episodes.make_task(player, rows)


def start(factory, **limits):
    return lambda: play(ScriptedSampler(TURN), factory, **limits)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (start(EvenGame, max_tokens=2), "max_tokens is 2"),
        (start(Random), "start"),
        (start(Endless, max_turns=2), "inf"),
        (make_task(make_player(), []), "`id`"),
        (make_task(make_player(), [ROWS[0], ROWS[0]]), "`id`"),
        (make_task(make_player(), [{"numbers": "5"}]), "`id`"),
        (make_task(make_player(), [{"id": 1}]), "`id`"),
        (make_task(make_player(failing(explode, row="p0", turn=0)), ROWS), "'p0': .*tower"),
        (make_task(make_player(max_tokens=2), ROWS), "max_tokens is 2"),
        (make_task(with_renderer(Refusing()), ROWS), "loses tools"),
        (make_task(with_renderer(Refusing(), max_turns=1), ROWS), None),
        (
            make_task(with_renderer(Strict(), ToolGame, on_bad_call="reply"), ROWS),
            "no call.*to end",
        ),
        (make_task(with_renderer(Strict(), ToolGame), ROWS), None),
    ],
)
def test_what_cannot_start_or_be_rendered_is_refused(call, word):
    with pytest.raises(ValueError, match=word) if word else contextlib.nullcontext():
        call()


# --- Repeatability


class Changing(EvenGame):
    """Changes all that it is handed."""

    def start(self, row, seed):
        self.messages, tools = super().start(row, seed)
        row["numbers"] = "5"
        return self.messages, tools

    def step(self, message):
        self.messages.clear()
        reply = super().step(message)
        message.clear()
        return reply


def test_an_environment_cannot_change_rows_and_messages():
    rows = make_rows(2)
    changed = play(ScriptedSampler(TURN), Changing, rows)
    assert changed.episodes == play(ScriptedSampler(TURN)).episodes
    assert rows == ROWS


def test_an_episode_is_a_function_of_its_row_and_step_and_members_of_a_group_differ():
    sampler = make_sampler(load("llama").double(), ENDS)
    batch = play(sampler, group_size=4)
    for group in (batch.episodes[:4], batch.episodes[4:]):
        assert len({item.env_seed for item in group}) == 1
        assert len({tuple(item.token_ids) for item in group}) > 1
    assert play(sampler, rows=ROWS[1:], group_size=4).episodes == batch.episodes[4:]
    later = play(sampler, group_size=4, step=6)
    assert {e.env_seed for e in later.episodes}.isdisjoint(e.env_seed for e in batch.episodes)


# --- What is learned


class FailsAt(EvenGame):
    """Fails in the episodes with these numbers, counted over all, or in these calls of `step`."""

    number, calls, at_episodes, at_calls = -1, 0, (), ()

    def start(self, row, seed):
        FailsAt.number += 1
        self.fails = FailsAt.number in FailsAt.at_episodes
        return super().start(row, seed)

    def step(self, message):
        FailsAt.calls += 1
        if self.fails or FailsAt.calls in FailsAt.at_calls:
            raise OSError("gone")
        return super().step(message)


@pytest.fixture
def take(monkeypatch):
    """Function that takes a step of a preset in this game, of 6 rows and 3 episodes each."""

    def take(preset, draw=None, **failures):
        changes = {"number": -1, "calls": 0, "at_episodes": (), "at_calls": ()} | failures
        for name, value in changes.items():
            monkeypatch.setattr(FailsAt, name, value)
        player = make_player(FailsAt, max_failed_share=0.3)
        monkeypatch.setattr(every_loop, "make_player", lambda: player)
        if draw is not None:
            task = replace(episodes.make_task(player, make_rows(6)), draw=draw)
            monkeypatch.setattr(episodes, "make_task", lambda *_: task)
        case = "ppo in episodes" if preset in presets.PPO else "grpo in episodes"
        setup = every_loop.Setup(case, is_exact=False)
        setup.method = every_loop.one_optimizer_step(preset)
        return setup.take_updates()

    return take


@pytest.mark.parametrize("preset", ["grpo_deepseekmath", "ppo_process", "dapo"])
def test_a_failed_episode_leaves_the_statistics_of_its_group_and_the_loss(preset, take):
    """Gradient and means are those of the group without it: only its tokens were sampled, too."""
    step, (actual,) = take(preset, at_calls=(5,))
    keep = [i for i, row in enumerate(step.rows) if row.episode["ending"] != FAILED]
    assert len(keep) == 17
    assert step.metrics["episode/failed"] == pytest.approx(1 / 18)
    whole = episodes.make_task(make_player(), make_rows(6))

    def drop(*inputs, **settings):
        batch = whole.draw(*inputs, **settings)
        names = ("groups", "numbers", "samples", "texts", "episodes")
        return replace(batch, **{n: [getattr(batch, n)[i] for i in keep] for n in names})

    without, (expected,) = take(preset, draw=drop)
    torch.testing.assert_close(actual.gradient, expected.gradient, rtol=1e-5, atol=1e-7)
    skipped = ("tokens/generated", "work/", "episode/failed", "ending/", "sampling/used",
               "advantage/zero_share")  # fmt: skip
    for key, value in without.metrics.items():
        if not key.startswith(skipped):
            assert step.metrics[key] == pytest.approx(value, rel=1e-5, abs=1e-6), key


def test_a_group_whose_greedy_episode_failed_has_no_baseline(take):
    step, _ = take("remax", at_episodes=(3 * 6 + 1,))  # greedy of the second row
    assert step.metrics["sampling/used"] == pytest.approx(5 / 6)
    assert step.metrics["episode/failed"] == 0


@pytest.mark.parametrize("rewards_differ", [True, False])
def test_dynamic_sampling_looks_at_a_group_without_its_failed_episodes(rewards_differ, monkeypatch):
    """Paid the same but for what failed, a group has no signal."""
    method = presets.method("dapo", max_rounds=2)
    config = GroupRlConfig(**every_loop.SIZES | {"prompts_per_step": 1}, group_size=3)
    monkeypatch.setattr(FailsAt, "number", -1)
    monkeypatch.setattr(FailsAt, "at_episodes", (0,))

    def draw(prompts, *, group_size):
        rows = [{"id": prompt.id, "numbers": "5"} for prompt in prompts]
        return play(ScriptedSampler(TURN), FailsAt, rows, group_size, max_failed_share=0.5)

    def reward(batch):
        totals = batch.numbers if rewards_differ else batch.failed()
        return CompletionRewards(totals=[float(total) for total in totals])

    sampled = rl.sample_and_reward(draw, reward, make_prompts(2), config, method)
    assert sampled.rollouts.failed().sum() == 1
    assert sampled.used.tolist() == ([False, True, True] if rewards_differ else [False] * 6)
    assert sampled.num_rounds == (1 if rewards_differ else 2)


def test_episodes_cut_in_several_steps_in_a_row_stop_the_run_failures_aside(monkeypatch):
    monkeypatch.setattr(rollouts, "MAX_TRUNCATED_STEPS", 3)
    batch = play(ScriptedSampler([6, 6, 6, 6, EOS]))
    assert batch.truncated().all()
    with pytest.raises(ValueError, match="max_turn_tokens"):
        rollouts.count_truncated_steps(batch, 2)
    broken = [replace(batch.episodes[0], ending="environment_error"), *batch.episodes[1:]]
    others = [replace(batch.samples[0], finish_reason="stop"), *batch.samples[1:]]
    assert rollouts.count_truncated_steps(replace(batch, episodes=broken, samples=others), 1) == 2
