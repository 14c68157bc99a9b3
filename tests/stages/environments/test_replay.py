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
    """Counts the turns from the seed on; ends at the third, and pays then."""

    drift: int = 0
    """Added to the second answer."""
    words: str = "count "
    fails_at: int = 0
    reward: float = 1.0
    turn: int = field(default=0, init=False)
    seed: int = field(default=0, init=False)

    def start(self, row: Any, seed: int) -> tuple[list[dict[str, Any]], list[Any]]:
        self.seed = seed
        return [{"role": "user", "content": f"{row['id']}{seed}"}], TOOLS

    def step(self, message: Any) -> Reply:
        message["content"] = ""  # what it does to its copy must not change the episode
        self.turn += 1
        if self.turn == self.fails_at:
            raise OSError("no connection")
        if self.turn == 3:
            return Reply(reward=self.reward, done=True)
        number = self.seed + self.turn + (self.drift if self.turn == 2 else 0)
        return Reply(messages=({"role": "tool", "content": f"{self.words}{number}"},))


def play(**changes: Any) -> Episode:
    """An episode of `Counter` with seed 7, ended by it; then with changed fields."""
    messages = [{"role": "user", "content": "a7"}]
    for turn in (1, 2, 3):
        messages.append({"role": "assistant", "content": f"turn {turn}"})
        messages += [{"role": "tool", "content": f"count {7 + turn}"}] if turn < 3 else []
    episode = Episode(
        id="a", index=0, env_seed=7, messages=messages, num_start_messages=1, tools=TOOLS,
        prompt_ids=[1], token_ids=[2, 3, 2, 3, 2], sampled=[(0, 1), (2, 3), (4, 5)],
        rewards=[0.0, 0.0, 1.0], reward=1.0, success=True, ending="done", error=None,
    )  # fmt: skip
    return replace(episode, **changes)


def test_an_episode_that_is_played_alike_has_no_difference() -> None:
    episode = play()
    assert replay_episode(Counter(), episode, ROW) is None
    assert episode == play()


@pytest.mark.parametrize(
    ("environment", "changes", "turn", "place", "expected", "actual"),
    [
        (Counter(drift=1), {}, 2, "messages[0].content", "count 9", "count 10"),
        (Counter(reward=0.5), {}, 3, "reward", 1.0, 0.5),
        (Counter(), {"tools": None}, 0, "tools", None, TOOLS),
        (Counter(), {"env_seed": 8}, 0, "messages[0].content", "a7", "a8"),
        (Counter(), {"ending": "turns"}, 3, "ending", "none", "done"),
        (Counter(fails_at=2), {}, 2, "ending", "none", f"{FAILED}: OSError: no connection"),
        (Counter(reward=float("nan")), {}, 3, "ending", "done", None),
        (Counter(), {"ending": FAILED}, 3, "ending", FAILED, "done"),
    ],
)
def test_the_first_difference(
    environment: Counter,
    changes: dict[str, Any],
    turn: int,
    place: str,
    expected: Any,
    actual: Any,
) -> None:
    difference = replay_episode(environment, play(**changes), ROW)
    assert difference is not None
    assert (difference.turn, difference.place, difference.expected) == (turn, place, expected)
    assert actual in (None, difference.actual)


def test_a_long_text_is_shown_from_where_it_differs() -> None:
    episode = play()
    words = "many words " * 20
    messages = [{**m, "content": m["content"].replace("count ", words)} for m in episode.messages]
    episode = replace(episode, messages=messages)
    shown = str(replay_episode(Counter(words=words, drift=1), episode, ROW))
    assert "from character 220: expected '9', found '10'" in shown


@pytest.mark.parametrize("ending", ["tokens", "tool_calls", "parse_error"])
def test_a_message_that_the_environment_never_read_is_not_stepped(ending: Any) -> None:
    episode = play()
    cut = replace(episode, messages=episode.messages[:4], rewards=[0.0, 0.0], ending=ending)
    assert replay_episode(Counter(fails_at=2), cut, ROW) is None


def test_the_failure_of_an_environment_is_replayed() -> None:
    episode = play()
    failed = replace(episode, messages=episode.messages[:4], rewards=[0.0], ending=FAILED)
    assert replay_episode(Counter(fails_at=2), failed, ROW) is None
    difference = replay_episode(Counter(), failed, ROW)
    assert difference is not None
    assert (difference.turn, difference.place, difference.actual) == (2, "ending", "none")


def test_a_start_that_failed_is_replayed() -> None:
    failed = play(messages=[], num_start_messages=0, rewards=[], ending=FAILED)
    assert replay_episode(Counter(), failed, {}) is None
    assert replay_episode(Counter(), failed, ROW) is not None


def test_an_answer_that_no_template_could_show_is_compared() -> None:
    episode = play()
    failed = replace(episode, messages=episode.messages[:5], rewards=[0.0, 0.0], ending=FAILED)
    assert replay_episode(Counter(), failed, ROW) is None
    difference = replay_episode(Counter(drift=1), failed, ROW)
    assert difference is not None
    assert (difference.turn, difference.place) == (2, "messages[0].content")
