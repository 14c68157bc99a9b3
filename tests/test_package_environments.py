"""Environments of other projects in the pipeline: made, learned from, played and replayed."""

from collections.abc import Callable
from typing import Any

import pytest
from environments_installed import needs_environments
from pipeline_copy import PipelineCopy

from stages.records import lines
from stages.records.episodes import EPISODES, Episode

STARTS = {"train": 8, "dev": 2, "test": 3}
SIZES = {"max_turns": 2, "max_turn_tokens": 6, "num_episodes": 2}
FAMILIES = {"chain_sum": {"min_terms": 2, "max_terms": 2}}
ENVIRONMENTS = {
    "reasoning_gym": ("prompts", {"starts": STARTS, "options": {"families": FAMILIES}}),
    "textarena": ("prompts", {"starts": STARTS, "options": {"name": "GuessTheNumber-v0"}}),
    "trl": ("own/counter", {"starts": "prompts", "options": {}}),
}
COUNTER = '''"""A counter."""


class Counter:
    def reset(self, **row):
        self.value = len(row["question"])

    def add(self, step: int) -> int:
        """Adds to the counter.

        Args:
            step: What to add.
        """
        self.value += step
        return self.value

    def get_reward(self):
        return float(self.value % 2 == 0)
'''


def add_rows(params: dict[str, Any], presets: dict[str, Any]) -> None:
    params["seeds"], params["environments"], params["episodes"] = [0], {}, {}
    params["grpo"] |= {"num_steps": 1, "prompts_per_step": 2}
    params["model"]["tiny"] |= {"max_length": 1024}
    for kind, (on, preset) in ENVIRONMENTS.items():
        presets[f"of_{kind}"] = preset | SIZES | {"max_tokens": 1000}
        params["environments"][kind] = {
            "by": kind, "preset": f"of_{kind}", "from": "base", "on": on
        }  # fmt: skip
        params["policies"][f"in_{kind}"] = {
            "train": "grpo", "preset": "grpo_deepseekmath", "from": "sft",
            "on": f"environments/{kind}",
        }  # fmt: skip
        params["episodes"][kind] = {
            "by": "policy", "from": f"in_{kind}", "on": f"environments/{kind}", "split": "test"
        }  # fmt: skip


@needs_environments
@pytest.mark.slow
@pytest.mark.weekly
def test_each_kind_is_learned_from_played_and_replayed(
    pipeline_copy: Callable[..., PipelineCopy],
) -> None:
    copy = pipeline_copy(add_rows)
    (copy.path / "stages/environments/own/counter.py").write_text(COUNTER)
    copy.run("-m", "dvc", "repro", *(f"play@{kind}" for kind in ENVIRONMENTS))
    for kind in ENVIRONMENTS:
        played = list(lines.read_lines(copy.path / f"data/episodes/{kind}/0/{EPISODES}", Episode))
        assert played
        assert copy.read(f"data/episodes/{kind}/0/metrics.json")["failed"] == 0
        steps = copy.path / f"data/journals/train/in_{kind}/journal-seed-0.jsonl"
        assert len(steps.read_text().splitlines()) == 1
        for row in (f"episodes/{kind}", f"policies/in_{kind}"):
            copy.run("-m", "stages.replay", row)
