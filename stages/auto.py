"""Replace `auto`, in params.yaml, presets.yaml and the studies' params.yaml, by its value.

The values are those of `rules`. Every stage that reads such a key depends on `data/prompts`, where
the facts are, and on this code: what was resolved is part of who a run is. A number in the place of
`auto` overrides.
"""

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from stages.rows import PROMPTS, TABLES
from stages.rules import RULES, Content, Facts

AUTO = "auto"
FACTS = PROMPTS / "facts.json"
KEPT = ("*.step_token", "*.correction")
"""`auto` that the tokenizer or the engine decides, where it is used."""
TERMS = ("lora", "engine", "*.max_new_tokens", "*.prompts_per_step")
"""Resolved first, in params.yaml: other rules depend on them."""
UNMEASURED = Facts(
    parameters=10**9, positions=4096, has_chat_template=True, prompt_tokens=512,
    completion_tokens=512, train_prompts=7000, demonstrations=7000,
)  # fmt: skip
"""Stands in where only the form of what is resolved matters: `stages.plan --check`."""

NO_RULE = "expected a value, found auto, for which stages/rules.py has no rule: write the value"


class Replaced(NamedTuple):
    """An `auto` that was replaced."""

    key: str
    pattern: str
    value: Any


def resolve(
    content: Content, facts: Facts | None, given: Content | None = None, *, strict: bool = True
) -> tuple[dict[str, Any], list[Replaced]]:
    """`content` with every `auto` replaced, and what was.

    `given` is params.yaml, where `content` is a part of it or another file. A ValueError where
    `model.path` is given and nothing is known of it yet, and for an `auto` without a rule, which is
    left as it is unless `strict`.
    """
    known: Content = content if given is None else given
    facts = None if is_embedded(known) else facts
    replaced: list[Replaced] = []

    def walk(value: Any, key: str, only: Sequence[str] = ("*",)) -> Any:
        if isinstance(value, Mapping) and key not in TABLES:
            at = f"{key}." if key else ""
            return {name: walk(one, f"{at}{name}", only) for name, one in value.items()}
        asked = any(fnmatchcase(key, one) for one in only)
        if value != AUTO or any(fnmatchcase(key, one) for one in KEPT) or not asked:
            return value
        if not strict and _pattern(key) is None:
            return value
        pattern, found = _value(key, facts, known)
        replaced.append(Replaced(key, pattern, found))
        return found

    known = walk(known, "", TERMS)
    replaced.clear()
    return walk(content, ""), replaced


def _value(key: str, facts: Facts | None, given: Content) -> tuple[str, Any]:
    """The pattern that `key` matches, and what its rule makes of it."""
    pattern = _pattern(key)
    if pattern is None:
        raise ValueError(f"{key}: {NO_RULE}")
    rule = RULES[pattern]
    if is_embedded(given) and rule.embedded is not None:
        return pattern, rule.embedded
    if facts is None and not is_embedded(given):
        raise ValueError(
            f"{key}: auto depends on what prepare_data measures of model.path, found no {FACTS} of "
            f"that model. Run `dvc repro prepare_data`."
        )
    try:
        return pattern, rule.of_facts(facts, given)  # pyright: ignore[reportArgumentType]
    except (ArithmeticError, KeyError, TypeError) as error:
        raise ValueError(
            f"{key}: auto follows from other keys, of which one is missing or wrong ({error}): "
            f"correct that one, or write a value in the place of auto."
        ) from error


def _pattern(key: str) -> str | None:
    return next((one for one in RULES if fnmatchcase(key, one)), None)


def is_embedded(given: Content) -> bool:
    """Whether params.yaml names no model."""
    model = given.get("model")
    return not isinstance(model, Mapping) or model.get("path") is None


def facts(given: Content) -> Facts | None:
    """Those that prepare_data wrote; None: this code wrote none, or params.yaml names no model."""
    if is_embedded(given) or not FACTS.is_file():
        return None
    found = json.loads(FACTS.read_text(encoding="utf-8"))
    return Facts(**found) if found.keys() == set(Facts.__slots__) else None


def show(content: Content, presets: Content, facts: Facts | None) -> None:
    """Print what every `auto` of params.yaml and presets.yaml is, and why."""
    whole = {**content, "presets": presets}
    table = Table()
    for column in ("auto", "value", "rule"):
        table.add_column(column, overflow="fold")
    found = {(one.pattern, str(one.value)) for one in resolve(whole, facts, strict=False)[1]}
    for pattern, value in sorted(found, key=lambda one: list(RULES).index(one[0])):
        rule = "of the embedded model" if is_embedded(content) else RULES[pattern].words
        table.add_row(pattern, value, rule)
    Console().print(table)
