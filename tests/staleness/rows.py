"""A row for every preset, so that DVC watches each."""

from collections.abc import Mapping
from typing import Any

from stages import plan_checks
from stages.config import PRESET

TABLES = {"train": "policies", "label": "pairs", "steps": "steps", "reward": "rewards",
          "environment": "environments"}  # fmt: skip
KIND = dict.fromkeys(TABLES.values(), "by") | {"policies": "train"}
FILES = "raw/people.jsonl"
LEARN_FROM = {
    "train_sft": "demonstrations", "train_dpo": "pairs/verifier", "train_grpo": "rewards/rule",
    "train_ppo": "rewards/preference", "label_people": FILES, "steps_people": FILES,
    "reward_preference": "pairs/verifier", "reward_process": "steps/sft", "reward_rule": "prompts",
}  # fmt: skip
"""What a stage of each kind may learn from; the others: a pool."""


def add(
    content: dict[str, Any], presets: Mapping[str, Any], entry_points: plan_checks.EntryPoints
) -> None:
    """Add a row of each preset that no row names."""
    named = {row.get(PRESET) for table in TABLES.values() for row in content[table].values()}
    for preset, entry in presets.items():
        if preset in named:
            continue
        names = [name for name in entry_points if plan_checks.fits(entry_points[name], entry)]
        name = "environment_own" if "environment_own" in names else names[0]
        assert len({entry_points[other] for other in names}) == 1, preset
        stage, _, kind = name.partition("_")
        table = TABLES[stage]
        on = LEARN_FROM.get(name, "pools/sft")
        if table == "rewards" and "own" in entry.get("components", {}):
            on = "own/brevity"
        if table == "environments":
            on = "own/calculator"
        row = {KIND[table]: kind, PRESET: preset, "from": "sft", "on": on}
        content[table][preset] = row
