"""Every preset of policy training has the numbers that it was measured with.

resolved_presets.txt has a line for each, every value of it written out. Change it only where a
change of a method is meant.
"""

from pathlib import Path
from typing import Any

import presets
import pytest

from stages.loops.method import Method
from stages.loops.preference import PreferencePreset
from stages.loops.sft import SftPreset

TABLE = Path(__file__).with_name("resolved_presets.txt").read_text(encoding="utf-8").splitlines()
FROZEN = {line.split(": ", 1)[0]: line.split(": ", 1)[1].split("; ") for line in TABLE}
SFT = ["sft", "cold_start", "rejection_sampling", "forward_kl", "pretraining"]
KINDS = dict.fromkeys(SFT, SftPreset)
KINDS |= dict.fromkeys(presets.PREFERENCE, PreferencePreset)
KINDS |= dict.fromkeys([*presets.GROUP_RL, *presets.DISTILLATION], Method)
KINDS |= dict.fromkeys(presets.PPO, Method)


def flat(content: Any, path: str = "") -> list[str]:
    if isinstance(content, dict):
        return [item for key, value in content.items() for item in flat(value, f"{path}.{key}")]
    return [f"{path.removeprefix('.')}={content}"]


def test_every_preset_of_policy_training_is_frozen():
    trained = {*SFT, *presets.PREFERENCE, *presets.GROUP_RL, *presets.DISTILLATION, *presets.PPO}
    assert set(FROZEN) == trained


@pytest.mark.parametrize("word", ["README.md", "stages/README.md"])
def test_both_readmes_name_every_method(word):
    text = (Path(__file__).parents[2] / word).read_text(encoding="utf-8")
    methods = {*presets.PREFERENCE, *presets.GROUP_RL, *presets.DISTILLATION, *presets.PPO}
    assert sorted(name for name in methods if f"`{name}`" not in text) == []


@pytest.mark.parametrize("name", FROZEN)
def test_the_resolved_values_are_the_frozen_ones(name):
    result = KINDS[name].model_validate(presets.CONTENT[name]).model_dump()
    assert sorted(flat(result)) == FROZEN[name]
