"""stages/README.md names every stage, preset, choice and recipe that a row can name."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages import configs, params

REPOSITORY = Path(__file__).resolve().parents[2]
MAP = (REPOSITORY / "stages/README.md").read_text(encoding="utf-8")


def missing(names: Iterator[str] | list[str]) -> list[str]:
    return [name for name in names if f"`{name}`" not in MAP]


def kinds(schema: Any) -> Iterator[str]:
    """Every value of a property `kind` anywhere inside a JSON schema."""
    if isinstance(schema, list):
        for item in schema:
            yield from kinds(item)
    if isinstance(schema, dict):
        told = schema.get("properties", {}).get("kind", {})
        yield from ([told["const"]] if "const" in told else told.get("enum", []))
        for item in schema.values():
            yield from kinds(item)


def test_every_preset_is_in_the_map() -> None:
    assert missing(list(params.read(REPOSITORY / params.PRESETS_PATH))) == []


def test_every_kind_of_choice_is_in_the_map() -> None:
    found = {
        kind
        for module in configs.entry_points(REPOSITORY / "dvc.yaml", REPOSITORY / "stages").values()
        for kind in kinds(module.Config.model_json_schema())
    }
    assert {"clip", "group_zscore", "sigmoid", "answer", "mean_minus_std", "prm800k"} <= found
    assert missing(sorted(found)) == []


def test_every_entry_point_is_in_the_map() -> None:
    stages = [
        path.stem
        for path in sorted((REPOSITORY / "stages").glob("*.py"))
        if "def main(" in path.read_text(encoding="utf-8")
    ]
    assert missing(stages) == []


def test_every_recipe_is_in_the_map() -> None:
    assert missing([path.stem for path in (REPOSITORY / "stages/recipes").glob("*.yaml")]) == []
