"""The presets of presets.yaml, as the embedded model has them, with changes."""

from pathlib import Path
from typing import Any

from stages import auto
from stages.config import PRESETS_PATH, read_yaml
from stages.loops.method import HYPERPARAMETERS, Method
from stages.loops.preference import PreferencePreset
from stages.rewards.reward_file import RewardFile

READ = read_yaml(Path(__file__).parents[1] / PRESETS_PATH)
CONTENT = auto.resolve({"presets": READ}, None)[0]["presets"]
PPO = [name for name, entry in CONTENT.items() if entry.get("advantage") == "gae"]
GROUP_RL = [
    "grpo_deepseekmath", "grpo_sequence", "grpo_trl", "grpo_verl", "grpo_reinforce", "grpo_process",
    "dr_grpo", "maxrl", "dapo", "gspo", "cispo", "rloo", "remax", "reinforce_pp",
]  # fmt: skip
DISTILLATION = ["opd", "self_distillation"]
LOSSES = {"sigmoid", "robust", "ipo_sum", "ipo_mean", "hinge", "simpo", "orpo", "cpo", "kto"}
PREFERENCE = [name for name, entry in CONTENT.items() if entry.get("kind") in LOSSES]


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


def loss(name: str) -> Any:
    """A preset of preference learning."""
    return PreferencePreset.model_validate(CONTENT[name])
