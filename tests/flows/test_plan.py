"""What is stale, and why, from dvc.yaml's graph and `dvc status`."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.graph import StageNode, downstream, with_ancestors
from flows.plan import describe_changes, expand, make_plan


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
    assert describe_changes(status) == (
        "deps a.py modified",
        "deps grpo.steps modified",
        "outs data/grpo deleted",
        "changed command",
    )


def test_only_a_changed_stage_and_what_reads_it_are_stale(
    toy_repository: Path, set_params: Callable[..., None]
) -> None:
    assert all(stage.stale for stage in make_plan(toy_repository).values())
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=toy_repository, check=True)
    plan = make_plan(toy_repository)
    assert list(plan) == ["prepare", "side@left", "side@right", "track"]
    assert not any(stage.stale for stage in plan.values())
    assert plan["side@left"].node.gpu == 1

    set_params(left={"mode": "other"})
    plan = make_plan(toy_repository)
    assert [name for name, stage in plan.items() if stage.stale] == ["side@left", "track"]
    assert plan["side@left"].changes == ("deps left modified",)
    assert plan["track"].stale_upstream == ("side@left",)
    assert list(make_plan(toy_repository, ["side@right"])) == ["prepare", "side@right"]


def test_a_folder_without_a_pipeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no dvc\.yaml in .* root of the repository"):
        make_plan(tmp_path)
