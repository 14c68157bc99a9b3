"""Training plays episodes at the same time: an environment keeps each one's state apart.

And it answers alike in the next process, in which sets of texts have another order.
"""

import contextlib
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from stages import library
from stages.environments import definition, hash_seed, own
from stages.environments.checks import check_replay
from stages.environments.definition import EnvironmentFile, EnvironmentPreset
from stages.environments.environment import Reply
from stages.environments.limits import EpisodeLimits
from stages.environments.replay import replay_episode, replay_together
from stages.environments.scripts import play_script
from stages.models.model_tokenizer import train_tokenizer

CASES: Any = YAML(typ="safe").load(Path(__file__).with_name("cases.yaml"))
ROWS = [{"id": "a"}, {"id": "b"}, {"id": "c"}]
LIMITS = EpisodeLimits()
TURNS = Counter[str]()


class Guess:
    """Pays for the secret of its own start; asked twice."""

    box: dict[str, int]

    def start(self, row, seed: int) -> tuple[list[dict[str, Any]], None]:
        self.keep(row, seed)
        return [{"role": "user", "content": "Guess."}], None

    def keep(self, row, seed: int):
        self.box = {"secret": seed % 97}

    def pay(self):
        return self.box["secret"]

    def step(self, message):
        return Reply(messages=[{"role": "user", "content": "Again."}], reward=float(self.pay()))


class OfClass(Guess):
    def keep(self, row, seed: int):
        type(self).box = {"secret": seed % 97}


class OfRow(Guess):
    """Two episodes of one start, as the members of a group are, count each other's turns."""

    def keep(self, row, seed: int):
        self.name = f"{row['id']}{seed}"
        TURNS[self.name] = 0

    def pay(self):
        TURNS[self.name] += 1
        return TURNS[self.name]


class OfProcess(Guess):
    """Draws from the generator of the process, which the last start has seeded."""

    library: Any = random

    def keep(self, row, seed: int):
        self.library.seed(seed % 2**32)

    def pay(self):
        return self.library.random()


class OfNumpy(OfProcess):
    library = np.random


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]])
@pytest.mark.parametrize("factory", [OfClass, OfRow, OfProcess, OfNumpy])
def test_state_that_episodes_share_is_refused(factory, rows: list[dict[str, Any]]):
    with pytest.raises(ValueError, match=r"beside others.*row '.' .*turn [12], reward"):
        check_replay(factory, rows, LIMITS, seed=0)


@pytest.mark.parametrize("factory", [OfProcess, OfNumpy])
def test_an_episode_that_draws_from_the_process_differs_if_replayed_alone(factory):
    episode = play_script(factory(), ROWS[0], 7, LIMITS)
    assert replay_episode(factory(), episode, ROWS[0]) is not None


def test_episodes_are_stepped_in_turns_and_each_that_started_is_closed():
    calls = list[str]()

    class Telling(Guess):
        def keep(self, row, seed: int):
            self.name = row["id"]
            calls.append(f"start {self.name}")

        def pay(self):
            calls.append(f"step {self.name}")
            return 0

        def close(self):
            calls.append(f"close {self.name}")

    class Demonstrating(Telling):
        def demonstrate(self, row, seed: int):
            self.start(row, seed)
            return [{"role": "assistant", "content": "1"}]

    limits = EpisodeLimits(max_turns=2)
    plays = [(play_script(Telling(), row, 7, limits), row) for row in ROWS[:2]]
    calls.clear()
    assert replay_together(Telling, plays) == [None, None]
    expected = ["start a", "start b", "step a", "step b", "step a", "step b"]
    assert calls == [*expected, "close a", "close b"]
    assert len(check_replay(Telling, ROWS, limits, seed=0)) == 4  # of each episode's own
    calls.clear()
    check_replay(Demonstrating, ROWS[:1], limits, seed=0)
    # Of two seeds each, two played and a demonstration; all of them, and one twice, together.
    assert calls.count("start a") == calls.count("close a") == 11


SAME = Guess()


@pytest.mark.parametrize("factory", [OfClass, lambda: SAME])
def test_the_library_checks_too_and_refuses_the_same_object_twice(factory):
    tokenizer: Any = train_tokenizer(["What is 2?"], 700)
    model: Any = None
    library.make_task(ROWS, None, Guess, LIMITS, model, tokenizer)
    with pytest.raises(ValueError, match=r"beside others|expected a new environment for each"):
        library.make_task(ROWS, None, factory, LIMITS, model, tokenizer)


@pytest.mark.parametrize(("words", "is_refused"), CASES["other_process"])
def test_what_another_process_would_answer_otherwise_is_refused(
    words, is_refused, tmp_path, monkeypatch
):
    (tmp_path / "words.py").write_text(CASES["words.py"].replace("<words>", words))
    # As far as imports can tell, here and in the other process, it is in the folder `own`.
    path = f"import stages.environments.own as own\nown.__path__.append({str(tmp_path)!r})\n"
    (tmp_path / "sitecustomize.py").write_text(path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(own, "__path__", [*own.__path__, str(tmp_path)])
    preset = EnvironmentPreset.model_validate({"starts": {"train": 1, "dev": 1, "test": 1}})
    file = EnvironmentFile(kind="own", preset=preset, own="words", own_digest=None, packages={})
    plays = check_replay(definition.load_factory(file), ROWS, preset, seed=0)
    sys.modules.pop("stages.environments.own.words", None)
    expected = pytest.raises(ValueError, match=r"differs between processes: row 'a' .*start, mess")
    with expected if is_refused else contextlib.nullcontext():
        hash_seed.check_hash_seed(file, plays)
