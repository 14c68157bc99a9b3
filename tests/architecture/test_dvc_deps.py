"""dvc.yaml says exactly what each stage reads, and nothing that would make it rerun in vain."""

from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from dvc.repo import Repo
from dvc.repo.reproduce import collect_stages, get_active_graph, plan_repro
from ruamel.yaml import YAML

from flows.plan import StageNode, downstream, read_graph
from stages.rows import ENTRY_POINTS, TABLES

REPOSITORY = Path(__file__).resolve().parents[2]
CODE = "data/code/"
NO_RECORD = {"plan", "trace_code", "track"}
GATHERING = {"evaluate", "compare", "track"}
"""Stages that may depend on the folder around other stages' outputs: whatever is added to it, they
have to see."""


@pytest.fixture(scope="module")
def graph() -> dict[str, StageNode]:
    return read_graph(REPOSITORY)


@pytest.fixture(scope="module")
def bodies() -> dict[str, dict[str, Any]]:
    """What dvc.yaml says of each stage, templates unresolved."""
    stages = YAML(typ="safe").load(REPOSITORY / "dvc.yaml")["stages"]
    return {name: stage.get("do", stage) for name, stage in stages.items()}


def contains(folder: str, path: str) -> bool:
    return PurePosixPath(folder) in PurePosixPath(path).parents


def kind(node: StageNode) -> str:
    return node.name.split("@")[0]


def test_the_default_is_at_most_thirty_stage_runs(graph: dict[str, StageNode]) -> None:
    assert len(graph) <= 30


def test_the_code_of_a_stage_is_its_entry_points_trace(
    graph: dict[str, StageNode], bodies: dict[str, dict[str, Any]]
) -> None:
    for name, body in bodies.items():
        _, _, package, *words = body["cmd"].splitlines()[-1].split()
        entry_point = words[0] if package == "stages" else package.removeprefix("stages.")
        traced = [dep for dep in body["deps"] if dep.startswith(CODE)]
        assert traced == ([] if name in ("plan", "trace_code") else [f"{CODE}{entry_point}.json"])
    for node in graph.values():
        for dep in node.deps:
            if dep.startswith(CODE):
                entry_point = dep.removeprefix(CODE).removesuffix(".json")
                module = ENTRY_POINTS.get(entry_point, entry_point)
                assert (REPOSITORY / "stages" / f"{module}.py").is_file(), node.name


def test_every_data_dependency_is_the_output_of_one_stage(graph: dict[str, StageNode]) -> None:
    made = {out for node in graph.values() for out in node.outs}
    unknown = [
        (node.name, dep)
        for node in graph.values()
        for dep in node.deps
        if dep.startswith("data/")
        and dep not in made
        and not dep.startswith((CODE, "data/raw"))
        # The folder around a table's outputs; `plan` makes it where the table has no rows.
        and not any(contains(dep, out) for out in made)
        and dep not in {f"data/{table}" for table in TABLES}
    ]
    assert unknown == []


def test_only_who_gathers_reads_a_folder_around_outputs(graph: dict[str, StageNode]) -> None:
    made = {out for node in graph.values() for out in node.outs}
    for node in graph.values():
        around = [dep for dep in node.deps if any(contains(dep, out) for out in made)]
        assert not around or kind(node) in GATHERING, (node.name, around)


def test_no_output_lies_inside_another(graph: dict[str, StageNode]) -> None:
    made = sorted(out for node in graph.values() for out in node.outs)
    assert len(made) == len(set(made))
    assert [(a, b) for a in made for b in made if contains(a, b)] == []


def test_a_row_writes_into_the_folder_of_its_name(graph: dict[str, StageNode]) -> None:
    for node in graph.values():
        _, _, row = node.name.partition("@")
        for out in node.outs if row else ():
            assert row in PurePosixPath(out).parts, node.name


def test_every_stage_leaves_journals_that_only_tracking_reads(
    graph: dict[str, StageNode],
) -> None:
    for name, node in graph.items():
        record = f"data/journals/{name.replace('@', '/')}"
        assert (record in node.outs) == (name not in NO_RECORD), name
    # They hold the digest of a stage's inputs: what reads them runs again when code is edited.
    readers = {n.name for n in graph.values() if any(d.startswith("data/journals") for d in n.deps)}
    assert readers == {"track"}
    assert downstream(graph, {"track"}) == set()


def test_what_code_and_data_reach(graph: dict[str, StageNode]) -> None:
    first = {"plan", "trace_code"}
    assert downstream(graph, {"trace_code"}) == set(graph) - first
    assert downstream(graph, {"prepare_data"}) == set(graph) - first - {"prepare_data"}
    assert downstream(graph, {"plan"}) == set(graph) - first  # by way of the digests of raw files


def test_plan_comes_before_anything_that_could_look_at_what_it_deletes() -> None:
    with Repo(str(REPOSITORY)) as repo:
        active = get_active_graph(repo.index.graph)
        order = plan_repro(active, collect_stages(repo, [str(REPOSITORY / "dvc.yaml")]))
    assert [stage.name for stage in order][:2] == ["plan", "trace_code"]


def test_nothing_switches_the_run_cache_off(bodies: dict[str, dict[str, Any]]) -> None:
    for name, body in bodies.items():
        assert not {"always_changed", "frozen", "wdir"} & body.keys(), name
        for out in body.get("outs", []):
            options = next(iter(out.values())) if isinstance(out, dict) else {}
            path = next(iter(out)) if isinstance(out, dict) else out
            # A plan that is restored would delete nothing.
            expected = {"cache"} if path == "data/plan.json" else set()
            assert {"persist", "cache"} & options.keys() == expected, (name, out)


def test_stages_that_compute_on_a_gpu_say_so(
    graph: dict[str, StageNode], bodies: dict[str, dict[str, Any]]
) -> None:
    # `gpu=True` in the entry point takes the slot; `meta` tells it to people and to queues
    for name, body in bodies.items():
        _, _, package, *words = body["cmd"].splitlines()[-1].split()
        start = words[0].split("${")[0] if package == "stages" else package.removeprefix("stages.")
        modules = {ENTRY_POINTS[word] for word in ENTRY_POINTS if word.startswith(start)} or {start}
        sources = [REPOSITORY / f"stages/{module}.py" for module in modules]
        uses = any("gpu=True" in path.read_text(encoding="utf-8") for path in sources)
        assert uses == bool(body.get("meta", {}).get("gpu")), name
