"""dvc.yaml says exactly what each stage reads, and nothing that would make it rerun in vain."""

from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from ruamel.yaml import YAML

from flows.graph import StageNode, downstream, read_graph
from stages import params
from stages.recipe import PREPARE_DATA, Recipe, maker

REPOSITORY = Path(__file__).resolve().parents[2]
TRACED = "data/trace_code/imports/"


@pytest.fixture(scope="module")
def graph() -> dict[str, StageNode]:
    return read_graph(REPOSITORY)


@pytest.fixture(scope="module")
def bodies() -> dict[str, dict[str, Any]]:
    """What dvc.yaml says of each stage, templates unresolved."""
    stages = YAML(typ="safe").load(REPOSITORY / "dvc.yaml")["stages"]
    return {name: stage.get("do", stage) for name, stage in stages.items()}


def data_deps(node: StageNode) -> list[str]:
    code = ("stages", "constraints.txt", TRACED)
    return [dep for dep in node.deps if not dep.startswith(code)]


def contains(folder: str, path: str) -> bool:
    return PurePosixPath(folder) in PurePosixPath(path).parents


def test_the_code_of_a_stage_is_its_entry_points_trace(graph: dict[str, StageNode]) -> None:
    for node in graph.values():
        traced = {dep for dep in node.deps if dep.startswith(TRACED)}
        own = {dep for dep in traced if dep.startswith(f"{TRACED}rewards/own/")}
        assert bool(own) == node.name.startswith(("train_ppo@", "train_grpo@")), node.name
        point = f"{TRACED}{node.name.split('@')[0]}.json"
        assert traced - own == (set() if node.name == "trace_code" else {point})
        assert [dep for dep in node.deps if dep.startswith("stages")] == (
            ["stages"] if node.name == "trace_code" else []
        )


def test_each_stage_runs_the_entry_point_of_its_name(bodies: dict[str, dict[str, Any]]) -> None:
    for name, body in bodies.items():
        assert body["cmd"].split()[:3] == ["python", "-m", f"stages.{name}"]


def test_every_data_dependency_is_the_output_of_one_stage(graph: dict[str, StageNode]) -> None:
    # what entries name that need no model is a committed file
    made = {"data/no_model", "data/no_file"} | {out for node in graph.values() for out in node.outs}
    unknown = {
        # An ensemble is a folder inside an output.
        node.name: [d for d in data_deps(node) if d not in made and str(Path(d).parent) not in made]
        for node in graph.values()
    }
    assert {name: deps for name, deps in unknown.items() if deps} == {}


def test_no_dependency_is_a_folder_that_stages_share(graph: dict[str, StageNode]) -> None:
    # DVC locks by path prefix: a stage that reads such a folder fails while another writes there
    made = {out for node in graph.values() for out in node.outs}
    shared = [
        (node.name, dep)
        for node in graph.values()
        for dep in node.deps
        if any(contains(dep, out) for out in made)
    ]
    assert shared == []


def test_no_output_lies_inside_another(graph: dict[str, StageNode]) -> None:
    made = sorted(out for node in graph.values() for out in node.outs)
    assert len(made) == len(set(made))
    assert [(a, b) for a in made for b in made if contains(a, b)] == []


def test_outputs_lie_in_the_folder_of_their_stage(graph: dict[str, StageNode]) -> None:
    for node in graph.values():
        folder = "data/" + node.name.replace("@", "/")
        # a card lies beside the checkpoint that it is about, which is another stage's
        own = [out for out in node.outs if not out.endswith("/model_card.md")]
        assert all(contains(folder, out) for out in own), node
        assert len(own) == len(node.outs) or node.name == "compare_probes", node


def test_every_stage_leaves_a_run_record_and_tracking_reads_them_all(
    graph: dict[str, StageNode],
) -> None:
    records = {f"data/{name.replace('@', '/')}/run": name for name in graph if name != "track"}
    for record, name in records.items():
        assert record in graph[name].outs
    assert set(data_deps(graph["track"])) == set(records)
    assert downstream(graph, {"prepare_data"}) == set(graph) - {"prepare_data", "trace_code"}
    assert downstream(graph, {"trace_code"}) == set(graph) - {"trace_code"}


def test_only_leaves_read_run_records(graph: dict[str, StageNode]) -> None:
    # a record holds times and ids: whatever reads one can never be restored for what reads it
    readers = {n.name for n in graph.values() if any(d.endswith("/run") for d in n.deps)}
    assert readers == {"track", "compare_policies", "write_report"}
    assert downstream(graph, {"compare_policies"}) == {"track", "write_report"}
    assert downstream(graph, {"write_report"}) == {"track"}


def test_nothing_switches_the_run_cache_off(bodies: dict[str, dict[str, Any]]) -> None:
    for name, body in bodies.items():
        assert not {"always_changed", "frozen", "wdir"} & body.keys(), name
        for out in body.get("outs", []):
            options = next(iter(out.values())) if isinstance(out, dict) else {}
            assert not {"persist", "cache"} & options.keys(), (name, out)


def test_stages_that_compute_on_a_gpu_say_so(bodies: dict[str, dict[str, Any]]) -> None:
    # `gpu=True` in the entry point takes the slot; `meta` tells it to people and to queues
    for name, body in bodies.items():
        source = (REPOSITORY / "stages" / f"{name}.py").read_text(encoding="utf-8")
        assert ("gpu=True" in source) == (body.get("meta", {}).get("gpu", 0) > 0), name


def test_the_cards_that_dvc_tracks_are_those_that_compare_probes_writes(
    graph: dict[str, StageNode],
) -> None:
    plan = Recipe.model_validate(params.read(REPOSITORY / "params.yaml")["plan"])
    made_by = {maker(probing.policy) for probing in plan.probe_policy.values()} - {PREPARE_DATA}
    outs = {out for out in graph["compare_probes"].outs if out.endswith("/model_card.md")}
    assert outs == {f"data/{entry}/model_card.md" for entry in made_by}
    assert len(outs) > 1
