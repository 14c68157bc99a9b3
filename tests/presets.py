"""The presets of presets.yaml, with changes."""

from pathlib import Path
from typing import Any

from stages import params
from stages.loops.group_preset import GroupRlPreset
from stages.loops.ppo_preset import PpoPreset
from stages.loops.preference import PreferencePreset

CONTENT = params.read(Path(__file__).parents[1] / params.PRESETS_PATH)
GROUP_RL = [name for name, entry in CONTENT.items() if "sampling" in entry]
PPO = [name for name, entry in CONTENT.items() if "value_lam" in entry]
PREFERENCE = "dpo cdpo robust ipo_sum ipo_mean hinge simpo orpo cpo kto".split()
    "dpo",
    "cdpo",
    "robust",
    "ipo_sum",
    "ipo_mean",
    "hinge",
    "simpo",
    "orpo",
    "cpo",
    "kto",
]


def changed(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """A preset's content; a change of a key inside `value` is written flat."""
    found = {key: dict(v) if isinstance(v, dict) else v for key, v in CONTENT[name].items()}
    for key, value in changes.items():
        if key in found:
            found[key] = value
        elif key in found.get("value", {}):
            found["value"][key] = value
        else:
            raise KeyError(key)
    return found


def group_rl(name: str = "grpo_deepseekmath", **changes: Any) -> GroupRlPreset:
    return GroupRlPreset(**changed(name, changes))


def ppo(name: str = "ppo_instructgpt", **changes: Any) -> PpoPreset:
    return PpoPreset(**changed(name, changes))


def loss(name: str) -> Any:
    """The loss of a preset of preference learning."""
    return PreferencePreset.model_validate(CONTENT[name]).loss
