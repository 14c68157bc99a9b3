"""The presets of presets.yaml, with changes."""

from pathlib import Path
from typing import Any

from stages import params
from stages.loops.group_preset import GroupRlPreset
from stages.loops.ppo import PpoPreset

CONTENT = params.read(Path(__file__).parents[1] / "params.yaml")


def changed(table: str, name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """A preset's content; a change of a key inside `objective` or `value` is written flat."""
    found = {key: dict(v) if isinstance(v, dict) else v for key, v in CONTENT[table][name].items()}
    for key, value in changes.items():
        inside = next((part for part in ("objective", "value") if key in found.get(part, {})), None)
        if key in found:
            found[key] = value
        elif inside is not None:
            found[inside][key] = value
        else:
            raise KeyError(key)
    return found


def group_rl(name: str = "grpo_deepseekmath", **changes: Any) -> GroupRlPreset:
    return GroupRlPreset(**changed("group_rl", name, changes))


def ppo(name: str = "ppo_instructgpt", **changes: Any) -> PpoPreset:
    return PpoPreset(**changed("ppo", name, changes))
