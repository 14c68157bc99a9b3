"""stages/README.md names every stage, preset and choice that params.yaml can name."""

import typing
from pathlib import Path

import pytest
from pydantic import BaseModel

from stages import params
from stages.loops.group_preset import GroupRlPreset
from stages.loops.ppo import PpoPreset
from stages.models.aggregate import Aggregate
from stages.rewards.composition_config import Composition

REPOSITORY = Path(__file__).resolve().parents[2]
MAP = (REPOSITORY / "stages/README.md").read_text(encoding="utf-8")
CONTENT = params.read(REPOSITORY / "params.yaml")
TABLES = ("group_rl", "ppo", "preference", "rewards")


def kinds(config: type[BaseModel]) -> set[str]:
    """Every value of a field `kind` anywhere inside a configuration."""
    found: set[str] = set()
    pending: list[typing.Any] = [config]
    while pending:
        annotation = pending.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            for name, field in annotation.model_fields.items():
                if name == "kind":
                    found |= set(typing.get_args(field.annotation))
                else:
                    pending.append(field.annotation)
        else:
            pending += typing.get_args(annotation)
    return found


@pytest.mark.parametrize("table", TABLES)
def test_every_preset_is_in_the_map(table: str) -> None:
    assert CONTENT[table]
    assert [name for name in CONTENT[table] if f"`{name}`" not in MAP] == []


@pytest.mark.parametrize("config", [GroupRlPreset, PpoPreset, Composition])
def test_every_kind_of_choice_is_in_the_map(config: type[BaseModel]) -> None:
    assert kinds(config)
    assert [kind for kind in kinds(config) if f"`{kind}`" not in MAP] == []


def test_every_kind_of_ensemble_is_in_the_map() -> None:
    every = {
        kind for choice in typing.get_args(typing.get_args(Aggregate)[0]) for kind in kinds(choice)
    }
    assert every == {"mean", "min", "mean_minus_std", "mean_minus_variance"}
    assert [kind for kind in every if f"`{kind}`" not in MAP] == []


def test_every_entry_point_is_in_the_map() -> None:
    stages = [
        path.stem
        for path in (REPOSITORY / "stages").glob("*.py")
        if "def main(" in path.read_text(encoding="utf-8")
    ]
    assert [stage for stage in stages if f"`{stage}`" not in MAP] == []
