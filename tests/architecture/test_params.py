"""The parameters, the entry points' Configs and the `params:` of dvc.yaml say the same.

A key that a stage reads but DVC does not watch gives stale results; one that DVC watches but no
stage reads reruns work in vain.
"""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from flows.graph import StageNode, read_graph
from stages import params

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class EntryPoint:
    fields: tuple[str, ...]
    tables: tuple[str, ...]


def read_entry_point(path: Path) -> EntryPoint:
    """Field names of its `Config` and its `TABLES`, without importing it."""
    fields: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == "Config":
            names = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
            fields = tuple(target.id for target in names if isinstance(target, ast.Name))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TABLES":
            tables = ast.literal_eval(node.value)
    return EntryPoint(fields, tables)


@pytest.fixture(scope="module")
def graph() -> dict[str, StageNode]:
    return read_graph(REPOSITORY)


@pytest.fixture(scope="module")
def entry_points() -> dict[str, EntryPoint]:
    names = set(YAML(typ="safe").load(REPOSITORY / "dvc.yaml")["stages"])
    return {name: read_entry_point(REPOSITORY / "stages" / f"{name}.py") for name in names}


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return params.read(REPOSITORY / "params.yaml")


def test_every_key_is_read_by_a_stage_and_every_field_is_a_key(
    content: dict[str, Any], entry_points: dict[str, EntryPoint]
) -> None:
    read = {field for entry in entry_points.values() for field in entry.fields}
    # of the recipes, only the planned one is read
    assert read | {"recipes"} == set(content)


def test_a_section_belongs_to_the_stage_of_its_name(entry_points: dict[str, EntryPoint]) -> None:
    for name, entry in entry_points.items():
        if name in entry.fields:
            assert entry.fields[-1] == name, "the stage's own section is the last field"
        others = set(entry.fields) & set(entry_points) - {name}
        assert not others, f"{name} reads the section of {others}"
        assert set(entry.tables) <= set(entry.fields), name


def test_dvc_watches_what_the_stage_reads(
    graph: dict[str, StageNode], entry_points: dict[str, EntryPoint], content: dict[str, Any]
) -> None:
    for node in graph.values():
        entry = entry_points[node.name.split("@")[0]]
        assert sorted(key.split(".")[0] for key in node.params) == sorted(entry.fields), node.name
        for key in node.params:
            section, *picked = key.split(".")
            assert bool(picked) == (section in entry.tables), (node.name, key)
            assert not picked or picked[0] in content[section], (node.name, key)


def test_execution_has_no_place_in_params_yaml(content: dict[str, Any]) -> None:
    # where a stage runs comes from the environment; here it would change every hash
    def keys(value: Any) -> set[str]:
        if not isinstance(value, dict):
            return set()
        return set(value) | {inner for item in value.values() for inner in keys(item)}

    forbidden = {"device", "gpu", "num_gpus", "tracking_uri", "token", "password", "host", "cache"}
    assert keys(content) & forbidden == set()
