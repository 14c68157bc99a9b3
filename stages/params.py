"""Configurations from params.yaml and presets.yaml, with a value for every `auto` (`auto`)."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import pydantic
from rich.console import Console
from rich.table import Table

import stages
from stages import auto
from stages.auto import Facts
from stages.config import (
    PARAMS_PATH,
    PRESET,
    PRESETS_PATH,
    Params,
    error_messages,
    find_entry,
    merge,
    pick_sections,
    read_yaml,
)
from stages.rows import PROMPTS

FACTS_PATH = PROMPTS / "facts.json"
LOCK_PATH = Path("dvc.lock")
ConfigT = TypeVar("ConfigT", bound=Params)


def adopt_rounding() -> None:
    """Restart this process with the CPU instructions of `compute.rounding` in params.yaml.

    Call it before anything computes: libraries choose their instructions when they are loaded. It
    does nothing if this process already has them, or without a params.yaml.
    """
    if not PARAMS_PATH.exists():
        return
    compute = read_yaml().get("compute")
    rounding = compute.get("rounding", "pinned") if isinstance(compute, dict) else "pinned"
    if rounding != stages.ROUNDING and rounding in stages.ROUNDINGS:
        os.environ["POSTTRAIN_ROUNDING"] = rounding
        os.execv(sys.executable, sys.orig_argv)


def load_config(
    config: type[ConfigT],
    preset: str | None = None,
    facts: Facts | None = None,
    overrides: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> ConfigT:
    """A `config` from its keys of params.yaml, with the named preset as the field `preset`.

    `overrides`: section -> keys and values of a row that replace the section's.

    A ValueError lists every missing, unknown or mistyped key. `facts`: for `auto`; None: those of
    prepare_data.
    """
    params = read_yaml()
    for section, values in overrides.items():
        params = merge(params, {section: values})
    facts = facts or read_facts(params)
    content, _ = auto.resolve(pick_sections(config, params), facts, params)
    if preset is not None:
        content[PRESET] = load_preset(preset, params, facts)
    try:
        return config.model_validate(content)
    except pydantic.ValidationError as error:
        place = f" (preset '{preset}' of {PRESETS_PATH})" if preset is not None else ""
        lines = "\n  ".join(error_messages(error.errors(), content))
        raise ValueError(f"{PARAMS_PATH}{place} is not valid:\n  {lines}") from None


def load_preset(
    name: str, params: Mapping[str, Any] | None = None, facts: Facts | None = None
) -> dict[str, Any]:
    """An entry of presets.yaml, with every `auto` replaced; `params`: params.yaml, if read."""
    params = read_yaml() if params is None else params
    entry = find_entry(read_yaml(PRESETS_PATH), name, str(PRESETS_PATH))
    facts = facts or read_facts(params)
    return auto.resolve({"presets": {name: entry}}, facts, params)[0]["presets"][name]


def read_facts(params: Mapping[str, Any]) -> Facts | None:
    """Content of facts.json; None: this code has not written one, or params.yaml names no model."""
    if auto.is_embedded(params) or not FACTS_PATH.is_file():
        return None
    content = json.loads(FACTS_PATH.read_text(encoding="utf-8"))
    return Facts(**content) if content.keys() == set(Facts.__slots__) else None


def measured_facts(params: Mapping[str, Any]) -> Facts | None:
    """`read_facts`, if dvc.lock has them for the present model and data; else None."""
    if (facts := read_facts(params)) is None or not LOCK_PATH.is_file():
        return None
    prepared = read_yaml(LOCK_PATH)["stages"].get("prepare_data", {}).get("params", {})
    locked = prepared.get(str(PARAMS_PATH))
    return facts if locked == {name: params.get(name) for name in locked or ()} else None


def pick_presets(
    presets: Mapping[str, Any], tables: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, Any]:
    """Presets that rows name. `tables`: table -> row -> its words, as in data/plan.json."""
    names = {words.get("preset") for rows in tables.values() for words in rows.values()}
    return {name: entry for name, entry in presets.items() if name in names}


def print_table(params: Mapping[str, Any], presets: Mapping[str, Any], facts: Facts | None) -> None:
    """Print the value of every `auto` of params.yaml and of `presets`, and its rule."""
    table = Table()
    for column in ("auto", "value", "rule"):
        table.add_column(column, overflow="fold")
    _, resolved = auto.resolve({**params, "presets": presets}, facts, strict=False)
    values = {(item.pattern, str(item.value)) for item in resolved}
    for pattern, value in sorted(values, key=lambda row: (list(auto.RULES).index(row[0]), row[1])):
        rule = auto.RULES[pattern].description
        source = "of the embedded model" if auto.is_embedded(params) else rule
        table.add_row(pattern, value, source)
    Console().print(table)
