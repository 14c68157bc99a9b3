"""Read params.yaml, and one preset of stages/presets.yaml, into typed, frozen configurations.

They hold identity only: what can change an output. Each entry point declares one `Config(Params)`
whose field names are exactly the top-level keys of params.yaml that it reads, so the `params:` list
of its DVC stage is that list of names; a field `preset` is the entry of presets.yaml that its row
names. Knows nothing of stages, devices or tracking.
"""

from pathlib import Path
from typing import Any, TypeVar

import pydantic
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

PARAMS_PATH = Path("params.yaml")
PRESETS_PATH = Path("stages/presets.yaml")
PRESET = "preset"
"""The field of a `Config` that is read from presets.yaml."""


class Params(pydantic.BaseModel):
    """A section of params.yaml: immutable, strictly typed, no unknown keys, no defaults."""

    model_config = pydantic.ConfigDict(frozen=True, strict=True, extra="forbid")


ConfigT = TypeVar("ConfigT", bound=Params)


def read(path: Path = PARAMS_PATH) -> dict[str, Any]:
    """The content of a YAML file (1.2, so `1e-4` is a number); a ValueError if it is none."""
    try:
        return YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except YAMLError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def load(config: type[ConfigT], preset: str | None = None) -> ConfigT:
    """The keys of params.yaml that are its fields, and the named preset as its field `preset`.

    A ValueError lists every missing, unknown or mistyped key at once.
    """
    content = read()
    picked = {name: content[name] for name in config.model_fields if name in content}
    if preset is not None:
        picked[PRESET] = entry_of(read(PRESETS_PATH), preset, str(PRESETS_PATH))
    try:
        return config.model_validate(picked)
    except pydantic.ValidationError as error:
        named = f" (preset '{preset}' of {PRESETS_PATH})" if preset is not None else ""
        raise ValueError(f"{PARAMS_PATH}{named} is not valid:\n" + describe(error)) from None


def entry_of(table: dict[str, Any], entry: str, where: str) -> Any:
    """One entry of a table; a ValueError tells which there are."""
    if entry not in table:
        raise ValueError(
            f"{where} has no entry '{entry}'; it has {sorted(table)}. Add it, or name one of these."
        )
    return table[entry]


def describe(error: pydantic.ValidationError) -> str:
    """One line for each wrong key: where, what was found, what was expected."""
    return "\n".join(
        f"  {'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
        + ("" if item["type"] in ("missing", "extra_forbidden") else f" (found {item['input']!r})")
        for item in error.errors()
    )
