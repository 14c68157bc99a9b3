"""What is stale, and why, from dvc.yaml's graph and `dvc status`."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.plan import (
    StageNode,
    describe_changes,
    downstream,
    expand,
    make_plan,
    read_graph,
    with_ancestors,
)


def node(name: str, *upstream: str) -> StageNode:
    return StageNode(name=name, deps=(), outs=(), params=(), upstream=upstream, gpu=0)


GRAPH = {
    item.name: item
    for item in (
        node("prepare"),
        node("sft", "prepare"),
        node("evaluate@sft", "sft"),
        node("grpo", "sft"),
        node("evaluate@grpo", "grpo"),
        node("compare", "evaluate@grpo", "evaluate@sft"),
    )
}


def test_downstream_is_everything_that_reads_it_directly_or_not() -> None:
    assert downstream(GRAPH, {"grpo"}) == {"evaluate@grpo", "compare"}
    assert downstream(GRAPH, {"compare"}) == set()
    assert downstream(GRAPH, set()) == set()


def test_ancestors_come_along_and_siblings_do_not() -> None:
    assert with_ancestors(GRAPH, {"evaluate@grpo"}) == {"prepare", "sft", "grpo", "evaluate@grpo"}


def test_a_group_stands_for_its_elements_and_a_wrong_name_is_refused() -> None:
    assert expand(GRAPH, ["evaluate"]) == {"evaluate@sft", "evaluate@grpo"}
    assert expand(GRAPH, ["evaluate@sft", "grpo"]) == {"evaluate@sft", "grpo"}
    with pytest.raises(ValueError, match=r"no stage 'gpro'.*prepare, sft"):
        expand(GRAPH, ["gpro"])


def test_status_is_worded_for_people() -> None:
    status = [
        {"changed deps": {"a.py": "modified", "params.yaml": {"grpo.steps": "modified"}}},
        {"changed outs": {"data/grpo": "deleted"}},
        "changed command",
    ]
    assert tuple(describe_changes(status)) == (
        "deps a.py modified",
        "deps grpo.steps modified",
        "outs data/grpo deleted",
        "changed command",
    )


@pytest.mark.slow
def test_only_a_changed_stage_and_what_reads_it_are_stale(
    toy_repository: Path, set_params: Callable[..., None]
) -> None:
    assert all(stage.changes for stage in make_plan(toy_repository).values())
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=toy_repository, check=True)
    plan = make_plan(toy_repository)
    assert list(plan) == ["prepare", "side@left", "side@right", "track"]
    assert not any(stage.changes for stage in plan.values())
    assert plan["side@left"].gpu == 1

    set_params(left={"mode": "other"})
    plan = make_plan(toy_repository)
    assert [name for name, stage in plan.items() if stage.changes] == ["side@left", "track"]
    assert plan["side@left"].changes == ("deps left modified",)
    assert plan["track"].changes == ("after side@left",)
    assert list(make_plan(toy_repository, ["side@right"])) == ["prepare", "side@right"]


def test_a_folder_without_a_pipeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no dvc\.yaml in .* root of the repository"):
        make_plan(tmp_path)


# The folder around several outputs as a dependency: what comparing and tracking gather by.
# model@left, model@right -> gather; a study of gather's in a dvc.yaml of its own
DVC_YAML = """\
stages:
  model:
    foreach: [left, right]
    do:
      cmd: python work.py data/model/${item} raw.txt
      deps: [raw.txt, work.py]
      params: ["${item}"]
      outs: ["data/model/${item}"]
  gather:
    cmd: >-
      mkdir -p data/gather && cat data/model/*/out.txt > data/gather/out.txt
      && echo gather 0 >> started.log
    deps: [data/model]
    outs: [data/gather]
"""
STUDIES = """\
stages:
  study:
    wdir: ..
    cmd: python work.py data/study data/gather/out.txt
    deps: [data/gather, work.py]
    outs: [data/study]
"""


@pytest.fixture
def root(checkout_with_flows: Path) -> Path:
    (checkout_with_flows / "dvc.yaml").write_text(DVC_YAML)
    (checkout_with_flows / "studies").mkdir()
    (checkout_with_flows / "studies/dvc.yaml").write_text(STUDIES)
    return checkout_with_flows


def test_who_reads_the_folder_comes_after_all_that_write_into_it(root: Path) -> None:
    graph = read_graph(root)
    assert graph["gather"].upstream == ("model@left", "model@right")
    assert graph["gather"].deps == ("data/model",)
    assert list(graph) == ["model@left", "model@right", "gather"]


def test_studies_are_neither_in_the_graph_nor_planned(root: Path) -> None:
    assert list(make_plan(root)) == ["model@left", "model@right", "gather"]


@pytest.mark.slow
@pytest.mark.parametrize("command", [["-m", "dvc", "repro"], ["-m", "flows.local", "-j", "2"]])
def test_only_the_part_that_changed_and_who_gathers_run_again(
    root: Path,
    set_params: Callable[..., None],
    started: Callable[[], list[str]],
    command: list[str],
) -> None:
    def run() -> list[str]:
        before = len(started())
        subprocess.run([sys.executable, *command], cwd=root, check=True, capture_output=True)
        return started()[before:]

    first = run()
    assert sorted(first[:2]) == ["left", "right"]
    assert first[2:] == ["gather"]
    set_params(left={"mode": "other"})
    assert run() == ["left", "gather"]
    assert "other" in (root / "data/gather/out.txt").read_text()
    assert run() == []
    set_params(left={"mode": "work"})
    assert run() == []
    assert not (root / "data/study").exists()
