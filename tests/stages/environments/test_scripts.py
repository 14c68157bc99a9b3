"""Episodes without a policy, and whether an environment can be replayed."""

import itertools
import random
from asyncio import CancelledError
from typing import Any

import numpy as np
import pytest

from stages.environments import scripts
from stages.environments.checks import check_replay
from stages.environments.definition import EnvironmentPreset
from stages.environments.environment import Reply
from stages.environments.isolated_calls import IsolatedCalls
from stages.environments.replay import replay_episode
from stages.environments.tool_functions import write_call

TOOL = {
    "type": "function",
    "function": {
        "name": "guess",
        "parameters": {"properties": {"number": {"type": "integer"}, "why": {"type": "string"}}},
    },
}
ROW = {"id": "a", "secret": 2}
STARTS = {"train": 2, "dev": 1, "test": 1}


class Guess:
    """Pays 1 for the secret number; its demonstration counts up to it."""

    def __init__(self, draw=lambda seed: 0) -> None:
        self.draw = draw

    def start(self, row: Any, seed: int) -> tuple[list[Any], list[Any]]:
        self.secret = row["secret"]
        return [{"role": "user", "content": f"Guess ({self.draw(seed)})."}], [TOOL]

    def demonstrate(self, row: Any, seed: int) -> list[dict[str, Any]]:
        numbers = range(1, row["secret"] + 1)
        return [{"role": "assistant", "content": f"{number}"} for number in numbers]

    def step(self, message: Any) -> Reply:
        if message["content"] == f"{self.secret}":
            return Reply(reward=1.0, done=True)
        return Reply(messages=({"role": "user", "content": "no"},), reward=-0.25)


def preset(**changes: Any) -> EnvironmentPreset:
    return EnvironmentPreset.model_validate({"starts": STARTS, "success_reward": 0.75, **changes})


def play(secret: int, **changes: Any):
    row = {"id": "a", "secret": secret}
    script = scripts.demonstrate(Guess(), row, 7)
    return scripts.play_script(Guess(), row, 7, preset(**changes), script)


def test_a_demonstration_is_an_episode() -> None:
    episode = play(2)
    assert [message["content"] for message in episode.messages] == ["Guess (0).", "1", "no", "2"]
    assert (episode.rewards, episode.reward, episode.success) == ([-0.25, 1.0], 0.75, True)
    assert (episode.ending, episode.num_start_messages, episode.env_seed) == ("done", 1, 7)


def test_it_ends_at_the_limit_of_turns_or_of_calls() -> None:
    assert (play(5).ending, len(play(5).rewards), play(5).success) == ("turns", 4, False)
    canned = scripts.play_script(Guess(), {"id": "a", "secret": 9}, 7, preset(max_tool_calls=0))
    assert (canned.ending, canned.rewards) == ("tool_calls", [])


def test_canned_replies_call_each_tool_with_arguments_of_its_types() -> None:
    first, second = scripts.make_canned_replies([TOOL], 2)
    (call,) = first["tool_calls"]
    assert call["function"] == {"name": "guess", "arguments": {"number": 1, "why": "1"}}
    assert "tool_calls" not in second


def test_an_environment_without_a_demonstration_is_no_script() -> None:
    class Silent(Guess):
        demonstrate = None  # pyright: ignore[reportAssignmentType]

    with pytest.raises(ValueError, match="has no method `demonstrate"):
        scripts.demonstrate(Silent(), ROW, 7)

    class Answering(Guess):
        def demonstrate(self, row: Any, seed: int) -> Any:
            return row["said"]

    as_text = {"type": "function", "function": {"name": "guess", "arguments": '{"number": 2}'}}
    for said in (
        [{"role": "user", "content": "no"}], ["no"], None, [],
        [{"role": "assistant", "content": "", "tool_calls": [as_text]}],
    ):  # fmt: skip
        with pytest.raises(ValueError, match="expected messages of role assistant, the arguments"):
            scripts.demonstrate(Answering(), ROW | {"said": said}, 7)
    assert scripts.demonstrate(Answering(), ROW | {"said": [write_call("guess", number=2)]}, 7)


def test_what_is_random_from_the_seed_alone_can_be_replayed() -> None:
    check_replay(lambda: Guess(lambda seed: random.Random(seed).random()), [ROW], preset(), 0)


def test_an_environment_cannot_change_the_row() -> None:
    class Taking(Guess):
        def start(self, row: Any, seed: int) -> tuple[list[Any], list[Any]]:
            begun = super().start(row, seed)
            del row["secret"]
            return begun

    row = dict(ROW)
    check_replay(Taking, [row], preset(), 0)
    assert row == ROW


def test_ten_rewards_of_a_tenth_are_a_success() -> None:
    class Paying(Guess):
        def step(self, message: Any) -> Reply:
            done = message["content"] == f"{self.secret}"
            return Reply(messages=({"role": "user", "content": "so"},), reward=0.1, done=done)

    row = {"id": "a", "secret": 10}
    script = scripts.demonstrate(Paying(), row, 7)
    episode = scripts.play_script(
        Paying(), row, 7, preset(success_reward=1.0, max_turns=10), script
    )
    assert episode.success


COUNT = itertools.count()


@pytest.mark.parametrize("draw", [lambda _: random.random(), lambda _: next(COUNT)])
def test_what_is_not_is_refused_with_what_differs(draw: Any) -> None:
    with pytest.raises(ValueError, match=r"row 'a'.* start, messages\[0\]\.content: expected 'Gu"):
        check_replay(lambda: Guess(draw), [ROW], preset(), 0)


@pytest.mark.parametrize(
    ("seed_all", "draw"),
    [(random.seed, random.random), (np.random.seed, np.random.random)],
)
def test_what_seeds_the_global_generator_is_refused(seed_all: Any, draw: Any) -> None:
    """Episodes are stepped in turn: each would go on with what the last one that started seeded."""

    class Shared(Guess):
        def start(self, row: Any, seed: int) -> tuple[list[Any], list[Any]]:
            seed_all(seed % 2**32)
            return super().start(row, seed)

        def step(self, message: Any) -> Reply:
            return Reply(messages=[{"role": "user", "content": f"{draw()}"}])

    with pytest.raises(ValueError, match=r"differs: turn 1, messages\[0\].*random\.Random\(seed\)"):
        check_replay(Shared, [ROW], preset(), 0)


@pytest.mark.parametrize("draw", [random.random, np.random.random])
def test_a_library_that_draws_from_the_global_generators_is_called_apart(draw: Any) -> None:
    class Apart(Guess):
        def start(self, row: Any, seed: int) -> tuple[list[Any], list[Any]]:
            self.call = IsolatedCalls(seed)
            return super().start(row, seed)

        def step(self, message: Any) -> Reply:
            return Reply(messages=[{"role": "user", "content": f"{self.call(draw)}"}])

    check_replay(Apart, [ROW], preset(), 0)
    with pytest.raises(ValueError, match=r"by an `isolated_calls\.IsolatedCalls\(seed\)`"):
        check_replay(lambda: Guess(lambda _: draw()), [ROW], preset(), 0)


def test_every_environment_that_started_is_closed_once() -> None:
    counts = {"started": 0, "closed": 0}

    class Holding(Guess):
        def start(self, row: Any, seed: int) -> tuple[list[Any], list[Any]]:
            counts["started"] += 1
            return super().start(row, seed)

        def demonstrate(self, row: Any, seed: int) -> list[dict[str, Any]]:
            self.start(row, seed)
            return super().demonstrate(row, seed)

        def close(self) -> None:
            counts["closed"] += 1

    check_replay(Holding, [ROW], preset(), 0)
    # Of two seeds each two played and a demonstration; all of them, and one twice, together.
    assert counts == {"started": 11, "closed": 11}


@pytest.mark.parametrize("limits", [{"max_turns": 2}, {"max_tool_calls": 1}])
def test_an_environment_that_pays_at_a_limit_can_be_replayed(limits: dict[str, int]):
    class Paying(Guess):
        num_read = 0

        def step(self, message: Any) -> Reply:
            self.num_read += 1
            return super().step(message)

        def finish(self) -> float:
            return 2.0 * self.num_read

    check_replay(Paying, [ROW], preset(**limits), seed=0)
    # Two answers are wrong, -0.25 each, and two messages were read.
    script = scripts.demonstrate(Guess(), {"id": "a", "secret": 9}, 7)
    episode = scripts.play_script(
        Paying(), {"id": "a", "secret": 9}, 7, preset(max_turns=2), script
    )
    assert (episode.ending, episode.rewards) == ("turns", [-0.25, 3.75])
    assert episode.success


ASKED = {"role": "user", "content": "Guess."}


async def in_vain(*_: Any) -> Any:
    raise AssertionError("nothing awaits it")


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        ([ASKED], "expected two values from start, first messages and tools"),
        ([ASKED, ASKED], r"expected two values from start, .*found \[{'role': 'user'"),
        (("Guess.", None), "expected a list of messages, found 'Guess.'"),
        (([], None), "expected first messages, found none"),
        (([ASKED], TOOL), "expected a list of JSON schemas as tools, or None, found {'type'"),
        (([ASKED], [len]), "expected a list of JSON schemas as tools, or None, found \\[<built-in"),
        (([{**ASKED, "size": {5}}], None), "as JSON in UTF-8 holds them, found .*TypeError"),
        (in_vain, "found a coroutine: write `def start`"),
    ],
)
def test_a_start_of_another_form_is_refused_by_what_it_should_be(start: Any, problem: str) -> None:
    class Starting(Guess):
        def start(self, row: Any, seed: int) -> Any:
            return start() if callable(start) else start

    with pytest.raises(ValueError, match=f"start of row 'a' failed: .*{problem}"):
        check_replay(Starting, [ROW], preset(), 0)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "expected a Reply from step, found None"),
        (Reply(messages=ASKED), "expected a list of messages, found {'role'"),  # pyright: ignore
        (Reply(messages=None, done=True), "expected a list of messages, found None"),  # pyright: ignore
        (Reply(messages=[{"role": "user", "content": "\ud83d"}]), "surrogates not allowed"),
        (Reply(done="False"), "expected True or False as done, found 'False'"),  # pyright: ignore
        (Reply(), "expected messages that the assistant answers, or done, found neither"),
        (in_vain, "found a coroutine: write `def step`"),
    ],
)
def test_a_step_that_returns_another_form_is_no_environment(value: Any, problem: str) -> None:
    class Stepping(Guess):
        def step(self, message: Any) -> Any:
            return value() if callable(value) else value

    with pytest.raises(ValueError, match=f"step of row 'a', turn 1: .*{problem}"):
        check_replay(Stepping, [ROW], preset(), 0)


def test_a_comparison_of_numpy_is_a_reward() -> None:
    class Paying(Guess):
        def step(self, message: Any) -> Reply:
            return Reply(reward=np.int64(2) == 2, done=np.bool_(True))  # pyright: ignore

    assert scripts.play_script(Paying(), ROW, 7, preset()).rewards == [1.0]


@pytest.mark.parametrize("reward", [None, float("nan")])
def test_what_raises_or_pays_no_number_for_a_canned_reply_may_be_an_environment(
    reward: Any,
) -> None:
    class Paying(Guess):
        def step(self, message: Any) -> Reply:
            return super().step(message) if message["content"] == "2" else Reply(reward=reward)

    class Cancelled(Guess):
        def step(self, message: Any) -> Reply:
            raise CancelledError

    assert scripts.play_script(Paying(), ROW, 7, preset()).ending == "environment_error"
    episode = scripts.play_script(Cancelled(), ROW, 7, preset())
    assert episode.ending == "environment_error"
    assert str(episode.error).startswith("CancelledError (test_scripts.py, line ")


def test_no_tools_and_an_empty_list_of_tools_are_the_same_to_a_replay() -> None:
    class Toolless(Guess):
        def start(self, row: Any, seed: int) -> tuple[list[Any], list[Any]]:
            return super().start(row, seed)[0], []

    episode = scripts.play_script(Toolless(), ROW, 7, preset())
    assert episode.tools is None
    assert replay_episode(Toolless(), episode, ROW) is None


@pytest.mark.parametrize(("bad", "is_warned_of"), [((2, 3), True), ((2,), False)])
def test_an_environment_that_always_fails_is_warned_of(
    bad: tuple[int, ...], is_warned_of: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Picky(Guess):
        demonstrate = property()  # pyright: ignore - it has none

        def step(self, message: Any) -> Reply:
            if self.secret in bad:
                raise KeyError("tower")
            return super().step(message)

    check_replay(Picky, [ROW, {"id": "b", "secret": 3}], preset(), 0)
    warned = [text for text in caplog.messages if "canned replies (KeyError: 'tower' (test" in text]
    assert len(warned) == is_warned_of
