"""params.yaml, the entry points' Configs and the `params:` of dvc.yaml say the same.

A key that a stage reads but DVC does not watch gives stale results; one that DVC watches but no
stage reads reruns work in vain.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from stages import auto, plan_checks, tables
from stages.config import PRESET, PRESETS_PATH, Params, read_yaml
from stages.rows import TABLES

FOLLOWED = "sampling.*.max_new_tokens"
"""What the limit of a judge follows where it is auto: no field of a `Config`. Which stages need it,
tests/staleness finds out."""
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def configs() -> dict[str, type[Params]]:
    return plan_checks.load_entry_points()


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return read_yaml(REPOSITORY / "params.yaml")


@pytest.fixture(scope="module")
def bodies() -> dict[str, dict[str, Any]]:
    """What dvc.yaml says of each stage, templates unresolved."""
    stages = YAML(typ="safe").load(REPOSITORY / "dvc.yaml")["stages"]
    return {name: stage.get("do", stage) for name, stage in stages.items()}


def runs(body: Mapping[str, Any], configs: Mapping[str, type[Params]]) -> dict[str, str]:
    """The entry points that a stage runs -> the kind that a row calls each by."""
    _, _, package, *words = body["cmd"].splitlines()[-1].split()
    entry_point = words[0] if package == "stages" else package.removeprefix("stages.")
    start, template, _ = entry_point.partition("${")
    if not template:
        return {entry_point: ""} if entry_point in configs else {}
    return {name: name.removeprefix(start) for name in configs if name.startswith(start)}


def watched(body: Mapping[str, Any], kind: str) -> set[str]:
    """The top-level keys, and `preset` where an entry of presets.yaml is watched."""
    result: set[str] = set()
    for item in body.get("params", []):
        if isinstance(item, dict):
            assert list(item) == [str(PRESETS_PATH)]
            result.add(PRESET)
        elif not fnmatchcase(item, FOLLOWED):
            result.add(kind if item.startswith("${item.") else item.split(".")[0])
    return result


def test_every_key_is_read_by_a_stage_and_every_field_is_a_key(
    content: dict[str, Any], configs: dict[str, type[Params]]
) -> None:
    read = {field for config in configs.values() for field in config.model_fields}
    assert (read - {PRESET}) | {*TABLES, *tables.ABOVE} == set(content)


def test_dvc_watches_what_a_stage_reads(
    bodies: dict[str, dict[str, Any]], configs: dict[str, type[Params]]
) -> None:
    seen: set[str] = set()
    for stage, body in bodies.items():
        kinds = runs(body, configs)
        seen |= set(kinds)
        read = {name: set(configs[name].model_fields) for name in kinds}
        for name, kind in kinds.items():
            assert read[name] <= watched(body, kind), f"{stage}: {name}"
            # What one kind of a stage does not read, another does.
            others = {key for other in kinds for key in read[other]} | {kind}
            assert watched(body, kind) <= others, f"{stage}: {name}"
    assert seen == set(configs)


def test_execution_has_no_place_in_params_yaml(content: dict[str, Any]) -> None:
    # where a stage runs comes from the environment; here it would change every hash
    def keys(value: Any) -> set[str]:
        if not isinstance(value, dict):
            return set()
        return set(value) | {inner for item in value.values() for inner in keys(item)}

    forbidden = {"device", "gpu", "num_gpus", "tracking_uri", "token", "password", "host", "cache"}
    assert keys(content) & forbidden == set()


def test_every_preset_is_one_of_exactly_one_kind(configs: dict[str, type[Params]]) -> None:
    read = {"presets": read_yaml(REPOSITORY / PRESETS_PATH)}
    presets = auto.resolve(read, None)[0]["presets"]
    kinds = {  # kinds of environments share a `Config`
        name: {config for config in configs.values() if plan_checks.fits(config, preset)}
        for name, preset in presets.items()
    }
    assert {name: item for name, item in kinds.items() if len(item) != 1} == {}
