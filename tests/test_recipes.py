"""Every recipe is a graph that DVC can run; one of them is run."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_copy import ROOT, PipelineCopy, change_params

from flows import gather
from flows.graph import read_graph
from stages import params

RECIPES = sorted(params.read(ROOT / "params.yaml")["recipes"])


def choose(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update(plan=content["recipes"][name])


def describe(path: Path, name: str) -> None:
    """A repository that has this repository's description and no more, of another plan."""
    shutil.copy(ROOT / "dvc.yaml", path)
    for file in (params.PARAMS_PATH, *params.BESIDE):
        shutil.copy(ROOT / file, path)
    change_params(path, choose(name))
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "-q"], cwd=path, check=True)


@pytest.mark.parametrize("name", RECIPES)
def test_every_data_dependency_of_a_recipe_is_the_output_of_one_of_its_stages(
    tmp_path: Path, name: str
):
    describe(tmp_path, name)
    text = gather.synchronised((tmp_path / "dvc.yaml").read_text(), tmp_path)
    (tmp_path / "dvc.yaml").write_text(text)
    graph = read_graph(tmp_path)
    made = {out for node in graph.values() for out in node.outs}
    traced = "data/trace_code/imports/"  # a folder of the rewards of one's own lies deeper in it
    read = {dep for node in graph.values() for dep in node.deps if dep.startswith("data/")}
    read = {dep for dep in read if not dep.startswith(traced)}
    # An ensemble is a folder inside an output.
    within = {str(path) for dep in read for path in Path(dep).parents if str(path) in made}
    missing = {dep for dep in read - made if str(Path(dep).parent) not in within}
    # Files that the user puts there.
    assert {dep for dep in missing if not dep.startswith("data/raw/")} <= {
        "data/no_model", "data/no_file", "data/no_scores.jsonl", "data/no_choice.json",
    }  # fmt: skip
    records = {out for out in made if out.endswith("/run")}
    assert records <= set(graph["track"].deps)
    evaluated = {node for node in graph if node.startswith("evaluate_policy@")}
    assert evaluated <= set(graph["compare_policies"].upstream)
    # Nothing is made that no evaluated policy needs.
    leaves = set(graph) - {other for node in graph.values() for other in node.upstream}
    assert leaves == {"track"}
    assert text == gather.synchronised(text, tmp_path)


@pytest.mark.slow
def test_r1_runs_and_a_plan_without_its_dependencies_does_not(
    pipeline_copy: Callable[..., PipelineCopy],
):
    copy = pipeline_copy(choose("r1"))
    with pytest.raises(AssertionError, match=r"another plan makes: run `python -m flows\.gather`"):
        copy.repro()
    assert copy.records() == {}
    copy.run("-m", "flows.gather")
    executed = copy.repro()
    assert {name for name in executed if name.startswith("train_")} == {
        *(f"train_sft@{name}" for name in ("base", "cold", "rft")),
        *(f"train_grpo@grpo-{number}" for number in (1, 2)),
    }
    comparison = copy.read("data/compare_policies/metrics.json")
    assert comparison["baseline"] == "base"
    assert list(comparison["policies"]) == ["base", "cold", "grpo-1", "grpo-2", "rft"]
    kept = copy.read("data/select_demonstrations/grpo-1/metrics.json")["kept"]
    assert copy.read("data/train_sft/rft/metrics.json")["demonstrations"] == kept > 0
    assert copy.read("data/train_sft/cold/metrics.json")["demonstrations"] == 100
    assert copy.repro() == set()
