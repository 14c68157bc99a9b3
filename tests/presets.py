"""The presets of presets.yaml, as the embedded model has them, with changes."""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from stages import auto, params
from stages.loops.group_rl import GroupRlPreset
from stages.loops.ppo import PpoPreset
from stages.loops.preference import PreferencePreset
from stages.rewards.reward_file import RewardFile

READ = params.read(Path(__file__).parents[1] / params.PRESETS_PATH)
CONTENT = auto.resolve({"presets": READ}, None)[0]["presets"]
GROUP_RL = [name for name, entry in CONTENT.items() if "sampling" in entry]
PPO = [name for name, entry in CONTENT.items() if "value_lam" in entry]
LOSSES = {"sigmoid", "robust", "ipo_sum", "ipo_mean", "hinge", "simpo", "orpo", "cpo", "kto"}
PREFERENCE = [name for name, entry in CONTENT.items() if entry.get("kind") in LOSSES]


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


def reward(name: str, model: str | None = None) -> RewardFile:
    """A rule of presets.yaml, with a model of this kind if it asks one."""
    content = {"kind": "rule", "model": model, "composition": CONTENT[name]}
    content |= {"aggregate": {"kind": "mean"}, "own": "brevity", "own_digest": None}
    return RewardFile.model_validate(content)


def choice(table: Any, content: Any) -> Any:
    """A choice outside of a preset."""
    return TypeAdapter(table).validate_python(content)


def loss(name: str) -> Any:
    """The loss of a preset of preference learning."""
    return PreferencePreset.model_validate(CONTENT[name]).loss
