"""An environment in the pipeline: its script, SFT on that, GRPO, PPO and DPO, episodes.

An edit of its file reruns its rows alone.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_copy import PipelineCopy

from stages.environments.checks import check_replay
from stages.environments.definition import load_factory, read_environment, read_rows
from stages.records import lines
from stages.records.episodes import EPISODES, Episode

FILE = Path("stages/environments/own/guess_number.py")
STARTS = {"train": 48, "dev": 4, "test": 8}
PRESET = {"starts": STARTS, "max_turn_tokens": 8, "num_episodes": 4}
POLICIES = {
    "copy": {
        "train": "sft",
        "preset": "sft",
        "from": "base",
        "on": "episodes/demos",
        "num_epochs": 40,
    },
    "play": {
        "train": "grpo",
        "preset": "grpo_deepseekmath",
        "from": "copy",
        "on": "environments/g",
    },
    "value": {"train": "ppo", "preset": "ppo_environment", "from": "copy", "on": "environments/g"},
    "better": {"train": "dpo", "preset": "dpo", "from": "copy", "on": "pairs/tries"},
}
EPISODES_ROWS = {
    "demos": {"by": "script", "from": "base", "on": "environments/g", "split": "train"},
    "tries": {"by": "policy", "from": "copy", "on": "environments/g", "split": "train"},
    "test": {"by": "policy", "from": "play", "on": "environments/g", "split": "test"},
}
OF_ENVIRONMENT = {
    "environment@g", "play@demos", "train@copy", "train@play", "train@value", "play@test",
    "play@tries", "label@tries", "train@better",
}  # fmt: skip


def add_rows(params: dict[str, Any], presets: dict[str, Any]) -> None:
    presets["short_game"] = PRESET
    params["seeds"] = [0]
    params["environments"] = {
        "g": {"by": "own", "preset": "short_game", "from": "base", "on": "own/guess_number"}
    }
    params["pairs"]["tries"] = {
        "by": "episodes", "preset": "episode_pairs", "from": "copy", "on": "episodes/tries"
    }  # fmt: skip
    params["episodes"], params["policies"] = EPISODES_ROWS, params["policies"] | POLICIES


@pytest.mark.slow
@pytest.mark.rotating
def test_an_edit_of_its_file_reruns_its_rows_alone(
    pipeline_copy: Callable[..., PipelineCopy],
) -> None:
    copy = pipeline_copy(add_rows)
    stages = ("train@sft", "train@value", "train@better", "play@test")

    def repro() -> set[str]:
        copy.run("-m", "dvc", "repro", *stages)
        result = copy.records()
        executed = {name for name, execution in result.items() if execution not in copy.executions}
        copy.executions |= set(result.values())
        return executed

    assert repro() == {"prepare_data", "train@sft", *OF_ENVIRONMENT}
    folder = copy.path / "data/episodes/test/0"
    episodes = list(lines.read_lines(folder / EPISODES, Episode))
    assert len(episodes) == 4 * STARTS["test"]
    assert copy.read("data/episodes/demos/0/metrics.json")["success"] == 1.0
    journal = (copy.path / "data/journals/train/play/journal-seed-0.jsonl").read_text()
    assert "episode/turns" in journal
    environment = read_environment(copy.path / "data/environments/g")
    starts = read_rows(copy.path / "data/environments/g", "test")
    check_replay(load_factory(environment), starts[:2], environment.preset, seed=1)
    assert repro() == set()
    text = (copy.path / FILE).read_text()
    (copy.path / FILE).write_text(text.replace("Guess a number from", "Guess one from"))
    assert repro() == OF_ENVIRONMENT
    (copy.path / FILE).write_text(text)
    assert repro() == set(), "changed back: restored"
