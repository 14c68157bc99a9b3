"""Typed, frozen configurations, and errors in the YAML that they are read from.

They hold only what can change an output. Each entry point declares one `Config(Params)`, whose
fields are exactly the top-level keys of params.yaml that it reads: they are the `params:` list of
its DVC stage. A field `preset` is the entry of presets.yaml that the row names. `params` reads
them. Independent of stages, devices and tracking.
"""

import difflib
import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pydantic
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

PARAMS_PATH = Path("params.yaml")
PRESETS_PATH = Path("stages/presets.yaml")
Where = bool | int | float | str | None | list[bool | int | float | str | None]
"""Value, or values, that a column of the rows to read has."""
PRESET = "preset"
"""Field of a `Config` that is read from presets.yaml."""
AUTO = "auto"
NO_RULE = "expected a value, found auto, for which stages/auto.py has no rule: write the value"


LARGER = "larger models are named under model.path"
BOUNDS = {
    "seeds": (0, 2**63 - 1, "a seed is a number of 63 bits"),
    "data_seed": (0, 2**63 - 1, "a seed is a number of 63 bits"),
    "num_processes": (0, 2**16, "each process takes a GPU"),
    "num_layers": (0, 2**10, LARGER),
    **dict.fromkeys(("hidden_size", "num_heads", "intermediate_size", "max_length", "vocab_size"),
                    (0, 2**22, LARGER)),
    "*temperature": (
        0.01, 100, "below, sampling is greedy; above, every token is as likely as any other"
    ),
    "*learning_rate": (1e-30, 1, "AdamW moves each weight by about this much in a step"),
    **dict.fromkeys(("*token_budget", "tokens"), (0, 10**15, "no run reads more tokens")),
    "*_tokens": (0, 2**27, "no model reads or writes more tokens at once"),
}  # fmt: skip
"""Pattern of keys (`fnmatch`; the first match counts) -> smallest and largest magnitude of a number
other than 0, and the reason. All published settings are far inside. Narrower limits (above 0, a
share) are in each `Config`."""
COUNTS = 0, 10**9, "no run would end"
"""Bounds of other integers."""
REALS = 1.2e-38, 1e18, "float32 holds neither smaller numbers nor larger squares"
"""Bounds of other numbers."""
MAX_CHARACTERS = 100_000


class Params(pydantic.BaseModel):
    """Section of params.yaml: immutable, strictly typed, no unknown keys, no NaN, in bounds."""

    model_config = pydantic.ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False
    )

    @pydantic.field_validator("*")
    @classmethod
    def _is_within_bounds(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        if not isinstance(value, Mapping):  # values of mappings are checked elsewhere
            check_bounds(str(info.field_name), value)
        return value


def check_hyperparameters(
    config: Params, choice: str, table: Mapping[Any, Collection[str]], key: str
) -> None:
    """Raise a ValueError if a field is set that another value of a choice uses, and not this one.

    `table`: value of the choice -> its fields; `key`: the value that is chosen, or its place.
    """
    every = {name for names in table.values() for name in names}
    for name in sorted(config.model_fields_set & every - {*table[key]}):
        users = " or ".join(user for user, names in table.items() if name in names)
        raise ValueError(
            f"{name} is of no use with {choice} {getattr(config, choice)}: remove it, or take "
            f"{choice} {users}"
        )


def check_bounds(name: str, value: Any) -> None:
    """Raise a ValueError if a number or text, also one inside lists and mappings, is out of bounds.

    `name`: the key, as in `BOUNDS`. The message names keys inside `value`.
    """
    for item in value if isinstance(value, list | tuple) else ():
        check_bounds(name, item)
    for key, item in value.items() if isinstance(value, Mapping) else ():
        try:
            check_bounds(str(key), item)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    if isinstance(value, str) and len(value) > MAX_CHARACTERS:
        raise ValueError(
            f"expected at most {MAX_CHARACTERS} characters, found {len(value)}: {value[:40]!a} ..."
        )
    if not isinstance(value, int | float) or isinstance(value, bool) or not value:
        return
    kind = COUNTS if isinstance(value, int) else REALS
    low, high, reason = next((BOUNDS[key] for key in BOUNDS if fnmatchcase(name, key)), kind)
    if not low <= abs(value) <= high:
        expected = f"{low:g} to {high:g}" if low else f"at most {high:g}"
        shown = repr(value)
        if isinstance(value, int) and value.bit_length() > 100:
            shown = f"a number of about {round(math.log10(abs(value)))} digits"
        raise ValueError(f"expected {expected} ({reason}), found {shown}")


def read_yaml(path: Path = PARAMS_PATH) -> dict[str, Any]:
    """Content of a YAML file (1.2, so `1e-4` is a number); a ValueError if it has no keys."""
    place = str(path)
    try:
        content = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            json.dumps(content, default=str, skipkeys=True)  # refuses a list that contains itself
            return content
        problem = "nothing" if content is None else f"a {type(content).__name__}"
    except OSError as error:
        problem = f"no file that can be read ({error.strerror})"
    except (YAMLError, ValueError, RecursionError) as error:  # 10,000 digits, or as many brackets
        mark, text = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        place += "" if mark is None else f", line {mark.line + 1}"
        problem = re.sub(r"^(but )?found | with value.*", "", text or str(error).splitlines()[0])
        problem = problem.replace("Circular reference detected", "an alias inside what it names")
    raise ValueError(
        f"{place}: expected YAML in UTF-8, a value for each key, found {problem}. Correct it, or "
        f"restore it from git."
    )


def pick_sections(config: type[pydantic.BaseModel], content: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of `content`, with values, that are fields of `config`."""
    return {name: content[name] for name in config.model_fields if name in content}


def merge(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`content` with other values of some keys, also of keys inside sections."""
    merged = dict(content)
    for key, value in changes.items():
        old = content.get(key)
        if not isinstance(value, Mapping):
            merged[key] = value
        elif value:
            merged[key] = merge(old if isinstance(old, Mapping) else {}, value)
    return merged


def spell_out_kind(content: Any) -> Any:
    """`{kind: name}` for the name of a kind without hyperparameters; other content unchanged."""
    return {"kind": content} if isinstance(content, str) else content


def find_entry(table: Mapping[str, Any], name: str, place: str) -> Any:
    """Entry of a table by name; a ValueError, which lists the table's entries, if it has none."""
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
    """Error lines, one per wrong key: its path, expected and found value, and a suggestion.

    A missing and an unknown key that resemble each other are one typo. `places`: names to print for
    top-level keys, and under "" for the whole content, in errors that concern several sections.
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
    """Path of a pydantic error as the keys in the content, without names of union members."""
    path: list[str] = []
    for part in error["loc"]:
        inside = part in content if isinstance(content, Mapping) else isinstance(part, int)
        if inside or (error["type"] == "missing" and part == error["loc"][-1]):
            path.append(str(part))
        content = content[part] if inside else content
    return path


def error_message(error: Any) -> str:
    """Message with the expected and found values, and a suggestion."""
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


def check_choice(value: str, choices: Collection[str]) -> str:
    """`value`; a ValueError that lists the choices if it is none of them."""
    if value not in choices or "<" in value:  # `own/<file>` stands for names
        *others, last = map(repr, choices)
        expected = f"{', '.join(others)} or {last}"
        raise ValueError(f"expected {expected}, found {value!r:.100}{suggest(value, choices, '')}")
    return value


def match_keys(keys: Collection[str], expected: Collection[str], prefix: str) -> Iterator[str]:
    """Messages: unknown keys, each with the missing key that may be meant; other missing keys."""
    missing = [key for key in expected if key not in keys]
    for key in keys:
        if key not in expected:
            close = difflib.get_close_matches(key, missing, n=1)
            missing = [name for name in missing if name not in close]
            remedy = suggest(key, close, otherwise="; remove it")
            yield f"{prefix}{ascii(key)[1:-1]:.100}: unknown key{remedy}"
    yield from (f"{prefix}{key}: missing; add it" for key in missing)


def suggest(word: Any, choices: Collection[str], otherwise: str | None = None) -> str:
    """Text `; did you mean ...?` with the closest choice; if none is close, `otherwise` or all."""
    close = difflib.get_close_matches(str(word), choices, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    if otherwise is not None:
        return otherwise
    return f"; there is {', '.join(choices)}" if choices else "; there is none at all"
