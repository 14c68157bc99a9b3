"""Replay of an episode: equal to what was played, or the first difference."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages.environments.environment import Reply
from stages.environments.limits import EpisodeLimits
from stages.environments.replay import replay_episode
from stages.environments.scripts import play_script
from stages.records.episodes import Episode

CASES = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))
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

    def start(self, row, seed: int):
        self.seed = seed
        return [{"role": "user", "content": f"{row['id']}{seed}"}], self.tools

    def step(self, message):
        message["content"] = ""  # what it does to its copy must not change the episode
        self.turn += 1
        if self.turn == self.fails_at:
            raise OSError("no connection")
        if self.turn == 3:
            return Reply(reward=self.reward, done=True)
        number = self.seed + self.turn + (self.drift if self.turn == 2 else 0)
        message = {"role": "tool", "content": f"{self.words}{number}"}
        return Reply(messages=(message,), reward=float(self.turn))


class Finishing(Counter):
    def finish(self):
        return 10.0 * self.turn


def play(num_messages: int = 6, **changes) -> Episode:
    """An episode of `Counter` with seed 7, ended by it; then cut, and with changed fields."""
    script = [{"role": "assistant", "content": f"turn {turn}"} for turn in (1, 2, 3)]
    episode = play_script(Counter(), ROW, 7, EpisodeLimits(), script)
    messages, rewards = episode.messages[:num_messages], episode.rewards[: num_messages // 2]
    return replace(episode, **{"messages": messages, "rewards": rewards} | changes)


@pytest.mark.parametrize("case", CASES["replays"], ids=lambda case: case["it"])
def test_the_first_difference_of_a_replay_is(case):
    environment = (Finishing if "finishes" in case else Counter)(**case.get("environment", {}))
    changes, expected = case.get("changes", {}), case.get("differs")
    episode = play(**changes)
    difference = replay_episode(environment, episode, case.get("row", ROW))
    assert episode == play(**changes)
    shown = difference and [getattr(difference, name) for name in difference.__slots__]
    assert (shown[: len(expected)] if shown and expected else shown) == expected


def test_a_long_text_is_shown_from_where_it_differs():
    words = "many words " * 20
    messages = [{**m, "content": m["content"].replace("count ", words)} for m in play().messages]
    episode = play(messages=messages)
    difference = replay_episode(Counter(words=words, drift=1), episode, ROW)
    assert "220: expected '9', found '10'" in str(difference)
