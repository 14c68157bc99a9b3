"""Whether rewards have what they ask, and whether PPO's and GRPO's presets can learn from them.

The stages refuse this too; here it is told before any of them works.
"""

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import pydantic

from stages.loops import group_preset, ppo_preset
from stages.params import PRESET
from stages.rewards import reward_file
from stages.rewards.composition import Composition
from stages.rewards.reward_file import RewardFile
from stages.tables import POLICIES, REWARDS, Tables

CHECKS = {
    "grpo": group_preset.check_reward,
    "ppo": ppo_preset.check_reward,
}
"""`train` of a row -> what refuses a reward for its sizes and preset."""


def find_problems(
    content: Mapping[str, Any],
    presets: Mapping[str, Any],
    rows: Tables,
    modules: Mapping[str, ModuleType],
) -> Iterator[str]:
    """Rules that do not name what they ask, and policies whose preset does not fit their reward.

    What is wrong in itself, `tables` and `configs` tell; it is left out here.

    Args:
        content: of params.yaml.
        presets: of presets.yaml.
        rows: of all tables.
        modules: entry point -> what defines its `Config`.
    """
    rewards: dict[str, RewardFile] = {}
    for name in rows[REWARDS]:
        try:
            if (reward := describe(name, presets, rows)) is not None:
                rewards[name] = reward
        except pydantic.ValidationError:
            continue
        except ValueError as error:
            yield f"{REWARDS}.{name}: {error}"
    for name, words in rows[POLICIES].items():
        method, reward = words["train"], rewards.get(words["on"].partition("/")[2])
        module = modules.get(f"train_{method}")
        if method not in CHECKS or reward is None or module is None:
            continue
        picked = {**content, PRESET: presets.get(words[PRESET])}
        try:
            config = module.Config.model_validate(
                {field: picked[field] for field in module.Config.model_fields if field in picked}
            )
        except pydantic.ValidationError:
            continue
        try:
            CHECKS[method](getattr(config, method), config.preset, reward)
        except ValueError as error:
            yield f"{POLICIES}.{name}: {error}"


def describe(name: str, presets: Mapping[str, Any], rows: Tables) -> RewardFile | None:
    """What the stage will write of a reward, without digests; None where nothing can be said.

    Raises:
        ValueError: a rule does not name what its components ask.
    """
    words = rows[REWARDS].get(name)
    if words is None or words["by"] not in ("rule", "preference", "outcome", "process"):
        return None
    if words["by"] != "rule":
        return reward_file.of_model(words["by"])  # pyright: ignore[reportArgumentType]
    composition = Composition.model_validate(presets.get(words[PRESET]))
    reward_file.check_source(composition, words["on"])
    if composition.needs_judge():
        model = "policy"
    elif composition.needs_model():
        other = describe(words["on"].removeprefix(reward_file.OTHER), presets, rows)
        if other is None:
            return None
        model = other.model
    else:
        model = None
    return RewardFile.model_validate(
        {
            "kind": "rule",
            "model": model,
            "composition": composition,
            "aggregate": {"kind": "mean"},
            "own": words["on"].removeprefix(reward_file.OWN) if composition.needs_own() else None,
            "own_digest": None,
        }
    )
