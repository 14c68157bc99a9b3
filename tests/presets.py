"""The presets of presets.yaml, as the embedded model has them, with changes.

The lists follow from the file: a preset that is appended to it is in every test of its kind.
"""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stages import auto
from stages.config import PRESETS_PATH, read_yaml
from stages.loops import preference
from stages.loops.method import HYPERPARAMETERS, Method
from stages.loops.preference import PreferencePreset
from stages.loops.sft import SftPreset
from stages.rewards.reward_file import RewardFile

READ = read_yaml(Path(__file__).parents[1] / PRESETS_PATH)
CONTENT = auto.resolve({"presets": READ}, None)[0]["presets"]


def _is(kind: Any, entry: dict[str, Any]) -> bool:
    try:
        kind.model_validate(entry)
    except ValidationError:
        return False
    return True


LOSSES = {*preference.HYPERPARAMETERS}
PREFERENCE = [name for name, entry in CONTENT.items() if _is(PreferencePreset, entry)]
SFT = [name for name, entry in CONTENT.items() if _is(SftPreset, entry)]
_BY_ADVANTAGE = {
    name: Method(**entry).advantage for name, entry in CONTENT.items() if _is(Method, entry)
}
PPO = [name for name, advantage in _BY_ADVANTAGE.items() if advantage == "gae"]
DISTILLATION = [name for name, advantage in _BY_ADVANTAGE.items() if advantage == "teacher"]
GROUP_RL = [name for name in _BY_ADVANTAGE if name not in (*PPO, *DISTILLATION)]


def method(name: str = "grpo_deepseekmath", **changes: Any) -> Method:
    """A preset of GRPO or PPO for the engine that trains, with changes of its keys.

    A change of a choice removes the keys that only the preset's own choice uses.
    """
    content = dict(CONTENT[name])
    for choice, table in HYPERPARAMETERS.items():
        if choice in changes:
            every = {name for names in table.values() for name in names}
            for name in every - set(table[changes[choice]]):
                content.pop(name, None)
    return Method(**content | changes).for_engine("transformers")


def reward(name: str, model: str | None = None) -> RewardFile:
    """A rule of presets.yaml, with a model of this kind if it asks one."""
    content = {"kind": "rule", "model": model, "composition": CONTENT[name]}
    content |= {"aggregate": {"kind": "mean"}, "own": "brevity", "own_digest": None}
    return RewardFile.model_validate(content)


def loss(name: str) -> PreferencePreset:
    """A preset of preference learning."""
    return PreferencePreset.model_validate(CONTENT[name])
