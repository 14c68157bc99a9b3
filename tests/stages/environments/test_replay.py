"""Replay of an episode: equal to what was played, or the first difference."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from stages.environments.environment import Reply
from stages.environments.replay import replay_episode
from stages.records.episodes import FAILED, Episode

ROW = {"id": "a"}
TOOLS = [{"type": "function", "function": {"name": "count"}}]


@dataclass
class Counter:
    """Counts the turns from the seed on; pays their number, and ends at the third."""

    drift: int = 0
    """Added to the second answer."""
    words: str = "count "
    fails_at: int = 0
    reward: float = 3.0
    tools: Any = field(default_factory=lambda: TOOLS)
    turn: int = field(default=0, init=False)

    def start(self, row: Any, seed: int) -> Any:
        self.seed = seed
        return [{"role": "user", "content": f"{row['id']}{seed}"}], self.tools

    def step(self, message: Any) -> Reply:
        message["content"] = ""  # what it does to its copy must not change the episode
        self.turn += 1
        if self.turn == self.fails_at:
            raise OSError("no connection")
        if self.turn == 3:
            return Reply(reward=self.reward, done=True)
        number = self.seed + self.turn + (self.drift if self.turn == 2 else 0)
        message = {"role": "tool", "content": f"{self.words}{number}"}
        return Reply(messages=(message,), reward=float(self.turn))


@dataclass
class Finishing(Counter):
    def finish(self) -> float:
        return 10.0 * self.turn


def play(num_messages: int = 6, **changes: Any) -> Episode:
    """An episode of `Counter` with seed 7, ended by it; then cut, and with changed fields."""
    messages = [{"role": "user", "content": "a7"}]
    for turn in (1, 2, 3):
        messages.append({"role": "assistant", "content": f"turn {turn}"})
        messages += [{"role": "tool", "content": f"count {7 + turn}"}] if turn < 3 else []
    rewards = [1.0, 2.0, 3.0][: num_messages // 2]
    episode = Episode(
        id="a", index=0, env_seed=7, messages=messages[:num_messages], num_start_messages=1,
        tools=TOOLS, prompt_ids=[1], token_ids=[2], sampled=[(0, 1)], rewards=rewards,
        reward=sum(rewards), success=True, ending="done", error=None,
    )  # fmt: skip
    return replace(episode, **changes)


FAILING = Counter(fails_at=2)
CASES: dict[str, tuple[Counter, dict[str, Any], tuple[int, str, Any, Any] | None]] = {
    # environment; changes of the episode; turn, place, expected and actual of the first difference
    "played alike": (Counter(), {}, None),
    "another answer": (Counter(drift=1), {}, (2, "messages[0].content", "count 9", "count 10")),
    "another reward": (Counter(reward=0.5), {}, (3, "reward", 3.0, 0.5)),
    "another reward of a turn": (Counter(), {"rewards": [1.0, 2.5, 3.0]}, (2, "reward", 2.5, 2.0)),
    "other tools": (Counter(), {"tools": None}, (0, "tools", None, TOOLS)),
    "no tools": (Counter(tools=[]), {"tools": None}, None),
    "another seed": (Counter(), {"env_seed": 8}, (0, "messages[0].content", "a7", "a8")),
    "an end": (Counter(), {"ending": "turns"}, (3, "ending", "none", "done")),
    "a failure": (FAILING, {}, (2, "ending", "none", f"{FAILED}: OSError: no connection")),
    "no number": (Counter(reward=float("nan")), {}, (3, "ending", "done", ...)),
    "no failure": (Counter(), {"ending": FAILED}, (3, "ending", FAILED, "done")),
    "the same failure": (FAILING, {"num_messages": 4, "rewards": [1.0], "ending": FAILED}, None),
    "a failure that is over": (Counter(), {"num_messages": 4, "rewards": [1.0], "ending": FAILED},
                               (2, "ending", FAILED, "none")),
    "an answer that no template shows": (Counter(), {"num_messages": 5, "ending": FAILED}, None),
    "another such answer": (Counter(drift=1), {"num_messages": 5, "ending": FAILED},
                            (2, "messages[0].content", "count 9", "count 10")),
    "paid by finish": (Finishing(), {"num_messages": 5, "rewards": [1.0, 22.0], "ending": "turns"}, None),
    "not paid by finish": (Finishing(), {"num_messages": 5, "ending": "turns"}, (2, "reward", 2.0, 22.0)),
    "paid by finish alone": (Finishing(), {"num_messages": 4, "rewards": [1.0, 10.0], "ending": "tokens"},
                             None),
    **{f"never read: {ending}": (Counter(fails_at=2), {
        "num_messages": 4, "rewards": [1.0, 0.0], "ending": ending}, None)
        for ending in ("tokens", "tool_calls", "parse_error")},
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_the_first_difference_is(kind):
    environment, changes, expected = CASES[kind]
    episode = play(**changes)
    difference = replay_episode(replace(environment), episode, ROW)
    assert episode == play(**changes)
    if expected is None:
        assert difference is None
        return
    assert difference is not None
    shown = (difference.turn, difference.place, difference.expected)
    assert shown == expected[:3]
    assert expected[3] in (..., difference.actual)


def test_a_start_that_failed_is_replayed():
    failed = play(0, ending=FAILED, num_start_messages=0, rewards=[])
    assert replay_episode(Counter(), failed, {}) is None
    assert replay_episode(Counter(), failed, ROW) is not None


def test_a_long_text_is_shown_from_where_it_differs():
    words = "many words " * 20
    messages = [{**m, "content": m["content"].replace("count ", words)} for m in play().messages]
    episode = play(messages=messages)
    difference = replay_episode(Counter(words=words, drift=1), episode, ROW)
    assert "220: expected '9', found '10'" in str(difference)
