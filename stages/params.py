"""Read params.yaml, and one preset of stages/presets.yaml, into typed, frozen configurations.

They hold identity only: what can change an output. Each entry point declares one `Config(Params)`
whose field names are exactly the top-level keys of params.yaml that it reads, so the `params:` list
of its DVC stage is that list of names; a field `preset` is the entry of presets.yaml that its row
names. An `auto` is replaced before (`auto`). Knows nothing of stages, devices or tracking.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pydantic
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from stages import auto
from stages.rules import Facts

PARAMS_PATH = Path("params.yaml")
PRESETS_PATH = Path("stages/presets.yaml")
LOCK = Path("dvc.lock")
PRESET = "preset"
"""The field of a `Config` that is read from presets.yaml."""


class Params(pydantic.BaseModel):
    """A section of params.yaml: immutable, strictly typed, no unknown keys, no defaults."""

    model_config = pydantic.ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False
    )


ConfigT = TypeVar("ConfigT", bound=Params)


def read(path: Path = PARAMS_PATH) -> dict[str, Any]:
    """The content of a YAML file (1.2, so `1e-4` is a number); a ValueError if it is none."""
    place = str(path)
    try:
        content = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
        found = "nothing" if content is None else f"a {type(content).__name__}"
    except OSError as error:
        found = f"no file that can be read ({error.strerror})"
    except (YAMLError, UnicodeDecodeError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        place += "" if mark is None else f", line {mark.line + 1}"
        found = re.sub(r"^(but )?found | with value.*", "", problem or str(error).splitlines()[0])
    raise ValueError(
        f"{place}: expected YAML in UTF-8, a value for each key, found {found}. Correct it, or "
        f"take it back from git."
    )


def load(config: type[ConfigT], preset: str | None = None, facts: Facts | None = None) -> ConfigT:
    """The keys of params.yaml that are its fields, and the named preset as its field `preset`.

    A ValueError lists every missing, unknown or mistyped key at once. `facts`, for `auto`: those
    that prepare_data wrote where it is None.
    """
    content = read()
    facts = facts or auto.facts(content)
    picked = {name: content[name] for name in config.model_fields if name in content}
    picked, _ = auto.resolve(picked, facts, content)
    if preset is not None:
        picked[PRESET] = preset_of(preset, content, facts)
    try:
        return config.model_validate(picked)
    except pydantic.ValidationError as error:
        named = f" (preset '{preset}' of {PRESETS_PATH})" if preset is not None else ""
        raise ValueError(f"{PARAMS_PATH}{named} is not valid:\n" + describe(error)) from None


def preset_of(
    name: str, content: Mapping[str, Any] | None = None, facts: Facts | None = None
) -> dict[str, Any]:
    """An entry of presets.yaml, every `auto` replaced; `content`: params.yaml, if it was read."""
    content = read() if content is None else content
    entry = entry_of(read(PRESETS_PATH), name, str(PRESETS_PATH))
    found, _ = auto.resolve({"presets": {name: entry}}, facts or auto.facts(content), content)
    return found["presets"][name]


def measured(content: Mapping[str, Any]) -> Facts | None:
    """`auto.facts`, where dvc.lock says that they are of this very model and data; else None."""
    if (facts := auto.facts(content)) is None or not LOCK.is_file():
        return None
    told = read(LOCK)["stages"].get("prepare_data", {}).get("params", {}).get(str(PARAMS_PATH))
    return facts if told == {name: content.get(name) for name in told or ()} else None


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
        f"  {'.'.join(str(part) for part in item['loc'])}: {said(item)}" for item in error.errors()
    )


WORDS = {
    r"Input should be (greater|less)": r"expected a number \1",
    r"Input should be a valid (dictionary|instance).*": "expected keys with values",
    r"Input should be a valid integer.*": "expected a whole number",
    r"Input should be a valid string": "expected text",
    r"Input should be a valid boolean": "expected true or false",
    r"Input should be (a )?(valid )?": r"expected \1",
    r"String should match pattern '\\{question\\}'": "expected a text with {question} in it",
    r"String should have at least 1 .*": "expected a text that is not empty",
    r"List should have at least 1 .*": "expected at least one",
}
"""What pydantic says, and how it is told."""


def written(item: Any, content: Any) -> Iterator[str]:
    """The place of pydantic's error by the keys that are there, without the kinds that it names."""
    for part in item["loc"]:
        inside = part in content if isinstance(content, Mapping) else isinstance(part, int)
        if inside or (item["type"] == "missing" and part == item["loc"][-1]):
            yield str(part)
        content = content[part] if inside else content


def said(item: Any) -> str:
    """What was expected and what was found, of one of pydantic's errors."""
    told, found = item["msg"], f"{item['input']!r:.100}"
    if item["type"] in ("missing", "extra_forbidden"):
        return "missing; add it" if item["type"] == "missing" else "unknown key; remove it"
    if item["type"] == "value_error":
        return told.removeprefix("Value error, ")
    if item["type"].startswith("union_tag"):
        named = item.get("ctx", {})
        known = named.get("expected_tags", "the name of one")
        told, found = f"expected as kind {known}", repr(named.get("tag", "none"))
    for pattern, words in WORDS.items():
        told = re.sub(f"^{pattern}", words, told)
    return f"{told}, found {found}"
