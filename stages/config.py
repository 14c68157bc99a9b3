"""Typed, frozen configurations, and what is wrong with the YAML that they are read from.

They hold identity only: what can change an output. Each entry point declares one `Config(Params)`
whose field names are exactly the top-level keys of params.yaml that it reads, so the `params:` list
of its DVC stage is that list of names; a field `preset` is the entry of presets.yaml that its row
names. `params` reads them. Knows nothing of stages, devices or tracking.
"""

import difflib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pydantic
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

PARAMS_PATH = Path("params.yaml")
PRESETS_PATH = Path("stages/presets.yaml")
Where = bool | int | float | str | list[bool | int | float | str]
"""The value, or values, of a column of the rows that are read."""
PRESET = "preset"
"""The field of a `Config` that is read from presets.yaml."""
AUTO = "auto"
NO_RULE = "expected a value, found auto, for which stages/auto.py has no rule: write the value"


class Params(pydantic.BaseModel):
    """A section of params.yaml: immutable, strictly typed, no unknown keys, no NaN."""

    model_config = pydantic.ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False
    )


def read_yaml(path: Path = PARAMS_PATH) -> dict[str, Any]:
    """The keys of a YAML file (1.2, so `1e-4` is a number); a ValueError if it has none."""
    place = str(path)
    try:
        content = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
        problem = "nothing" if content is None else f"a {type(content).__name__}"
    except OSError as error:
        problem = f"no file that can be read ({error.strerror})"
    except (YAMLError, ValueError, RecursionError) as error:  # 10,000 digits, or as many brackets
        mark, text = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        place += "" if mark is None else f", line {mark.line + 1}"
        problem = re.sub(r"^(but )?found | with value.*", "", text or str(error).splitlines()[0])
    raise ValueError(
        f"{place}: expected YAML in UTF-8, a value for each key, found {problem}. Correct it, or "
        f"take it back from git."
    )


def pick_sections(config: type[pydantic.BaseModel], content: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `content` that are fields of `config`."""
    return {name: content[name] for name in config.model_fields if name in content}


def override_section(
    content: Mapping[str, Any], section: str, values: Mapping[str, Any]
) -> dict[str, Any]:
    """`content` with other values of some keys of a section, also of keys inside its keys."""
    if not values:
        return dict(content)
    old = content.get(section)
    new: dict[str, Any] = dict(old) if isinstance(old, Mapping) else {}
    for key, value in values.items():
        is_section = isinstance(value, Mapping)
        new[key] = override_section(new, key, value)[key] if is_section else value
    return {**content, section: new}


def spell_out_kind(content: Any) -> Any:
    """The mapping that the name of a kind without hyperparameters stands for; all else as it is."""
    return {"kind": content} if isinstance(content, str) else content


def find_entry(table: Mapping[str, Any], name: str, place: str) -> Any:
    """One entry of a table; a ValueError lists those that it has."""
    if name not in table:
        raise ValueError(
            f"{place} has no entry '{name}'; it has {sorted(table)}. Add it, or name one of these."
        )
    return table[name]


MESSAGES = {
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
"""Pattern of pydantic's message -> ours."""


def error_messages(
    errors: Iterable[Any], content: Any, places: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """A line for each wrong key: its path, what was expected and found, and a suggestion.

    A missing and an unknown key that resemble each other are one typo. `places`: what to call a
    top-level key, and under "" the content as a whole, which sections that do not go together are.
    """
    unknown, missing = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for error in errors:
        first, *rest = error_path(error, content) or [""]
        *parents, name = [places.get(first, first), *rest]
        prefix = "".join(f"{parent}." for parent in parents)
        if error["type"] in ("extra_forbidden", "missing"):
            (missing if error["type"] == "missing" else unknown)[prefix].append(name)
        else:
            yield f"{prefix}{name}: {error_message(error)}"
    for prefix in sorted(unknown.keys() | missing.keys()):
        yield from match_keys(unknown[prefix], missing[prefix], prefix)


def error_path(error: Any, content: Any) -> list[str]:
    """The path of a pydantic error by the keys that are there, without names of union members."""
    path: list[str] = []
    for part in error["loc"]:
        inside = part in content if isinstance(content, Mapping) else isinstance(part, int)
        if inside or (error["type"] == "missing" and part == error["loc"][-1]):
            path.append(str(part))
        content = content[part] if inside else content
    return path


def error_message(error: Any) -> str:
    """What was expected, what was found, and the word that may be meant."""
    message, value = error["msg"], error["input"]
    if value == AUTO:
        return NO_RULE
    if error["type"] == "value_error":
        return message.removeprefix("Value error, ")
    if error["type"].startswith("union_tag"):
        context = error.get("ctx", {})
        message = f"expected as kind {context.get('expected_tags', 'the name of one')}"
        value = context.get("tag", "none")
    for pattern, plain in MESSAGES.items():
        message = re.sub(f"^{pattern}", plain, message)
    choices = re.findall(r"'([^']+)'", message) if isinstance(value, str) else []
    return f"{message}, found {value!r:.100}{suggest(value, choices, otherwise='')}"


def match_keys(keys: Collection[str], expected: Collection[str], prefix: str) -> Iterator[str]:
    """Unknown keys, each with the missing key that may be meant; then the other missing keys."""
    missing = [key for key in expected if key not in keys]
    for key in keys:
        if key not in expected:
            close = difflib.get_close_matches(key, missing, n=1)
            missing = [name for name in missing if name not in close]
            remedy = suggest(key, close, otherwise="; remove it")
            yield f"{prefix}{ascii(key)[1:-1]:.100}: unknown key{remedy}"
    yield from (f"{prefix}{key}: missing; add it" for key in missing)


def suggest(word: Any, choices: Collection[str], otherwise: str | None = None) -> str:
    """`; did you mean ...?` with the closest choice; if none is close, `otherwise` or all."""
    close = difflib.get_close_matches(str(word), choices, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    if otherwise is not None:
        return otherwise
    return f"; there is {', '.join(choices)}" if choices else "; there is none at all"
