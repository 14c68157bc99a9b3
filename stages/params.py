"""Read params.yaml and the two files beside it into typed, frozen configurations.

They hold identity only: what can change an output. Each entry point declares one `Config(Params)`
whose field names are exactly the top-level keys it reads, so the `params:` list of its DVC stage is
that list of names. A section may be a table of entries (`sft`, `sample_candidates`), of which a
stage reads the one that it is told. Three files, since DVC reads the whole of a file for each stage
that depends on a key of it. Knows nothing of stages, devices or tracking.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import pydantic
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

PARAMS_PATH = Path("params.yaml")
"""Numbers of the stages."""
BESIDE = ("presets.yaml", "recipes.yaml")
"""Methods and sources of data; what is trained from what. A key stands in any one of the files."""


class Params(pydantic.BaseModel):
    """A section of params.yaml: immutable, strictly typed, no unknown keys, no defaults."""

    model_config = pydantic.ConfigDict(
        frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True
    )


ConfigT = TypeVar("ConfigT", bound=Params)


def read(path: Path = PARAMS_PATH) -> dict[str, Any]:
    """All of params.yaml and of those beside it (YAML 1.2, so `1e-4` is a number).

    Raises:
        ValueError: one is no YAML: a key twice, a `plan: *name` of no recipe.
    """
    content = read_file(path)
    for name in BESIDE:
        other = path.with_name(name)
        if other.is_file():
            more = read_file(other)
            if twice := sorted(content.keys() & more.keys()):
                raise ValueError(f"{other}: {twice} stand in another file too. Keep one of them.")
            content |= more
    return content


def read_file(path: Path) -> dict[str, Any]:
    """One of them."""
    try:
        return YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except YAMLError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def load(
    config: type[ConfigT], pick: Mapping[str, str] | None = None, path: Path = PARAMS_PATH
) -> ConfigT:
    """What `config` names, validated.

    Args:
        config: its field names are the top-level keys to read.
        pick: for a section that is a table of entries, the entry to read: the field `sft` of
            `config` is then `<sft>.<pick["sft"]>`.
        path: params.yaml; the others are beside it.

    Raises:
        ValueError: listing every missing, unknown or mistyped key at once.
    """
    content = read_file(path)
    if not config.model_fields.keys() <= content.keys():
        content = read(path)
    picked = {name: content[name] for name in config.model_fields if name in content}
    for section, entry in (pick or {}).items():
        table = picked.get(section, {})
        if entry not in table:
            raise ValueError(
                f"'{section}' of {path} (or {', '.join(BESIDE)}) has no entry '{entry}'; it has "
                f"{sorted(table)}. "
                f"Add '{section}.{entry}' or name one of these."
            )
        picked[section] = table[entry]
    try:
        return config.model_validate(picked)
    except pydantic.ValidationError as error:
        raise ValueError(f"{path} is not valid:\n" + describe(error)) from None


def describe(error: pydantic.ValidationError) -> str:
    """One line for each wrong key: where, what was found, what was expected."""
    return "\n".join(
        f"  {'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
        + ("" if item["type"] in ("missing", "extra_forbidden") else f" (found {item['input']!r})")
        for item in error.errors()
    )
