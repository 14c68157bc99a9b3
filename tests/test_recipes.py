"""Recipes are graphs that DVC can run; two of them are run. That their words are right:
tests/stages/test_plan.py."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pipeline_copy import ROOT, PipelineCopy

from flows.plan import read_graph
from stages.rows import TABLES

RECIPES = sorted(path.stem for path in (ROOT / "stages/recipes").glob("*.yaml"))


@pytest.mark.parametrize("name", RECIPES)
def test_every_data_dependency_of_a_recipe_is_the_output_of_one_of_its_stages(
    tmp_path: Path, name: str
):
    for file in ("params.yaml", "stages/presets.yaml", f"stages/recipes/{name}.yaml"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    text = (ROOT / "dvc.yaml").read_text()
    assert text.count("vars: []") == 1
    switched_on = text.replace("vars: []", f"vars: [stages/recipes/{name}.yaml]")
    (tmp_path / "dvc.yaml").write_text(switched_on)
    subprocess.run(
        [sys.executable, "-m", "dvc", "init", "--no-scm", "-q"], cwd=tmp_path, check=True
    )
    graph = read_graph(tmp_path)
    made = {out for node in graph.values() for out in node.outs}
    read = {dep for node in graph.values() for dep in node.deps if dep.startswith("data/")}
    # One whole output, a file of data/code or data/own, or the folder around a table's outputs.
    missing = {
        dep
        for dep in read - made
        if not dep.startswith(("data/code/", "data/own/"))
        and not any(out.startswith(f"{dep}/") for out in made)
    }
    # Files that the user puts there, and the folders of tables without rows, which `plan` makes.
    missing -= {f"data/{table}" for table in TABLES}
    assert {dep for dep in missing if not dep.startswith("data/raw")} == set()
    leaves = set(graph) - {other for node in graph.values() for other in node.upstream}
    assert leaves == {"track"}
    assert {node for node in graph if node.startswith("evaluate@")} <= set(
        graph["compare"].upstream
    )


@pytest.mark.slow
@pytest.mark.rotating
def test_r1_and_rejection_sampling_run_and_are_gone_when_they_are_switched_off(
    pipeline_copy: Callable[..., PipelineCopy],
):
    def alone(params, presets):
        """The default's SFT policy and rule reward, and no other row."""
        for table, names in {"policies": ["sft"], "rewards": ["rule"]}.items():
            params[table] = {name: params[table][name] for name in names}
        params |= {"pools": {}, "pairs": {}, "steps": {}}

    copy = pipeline_copy(alone)
    copy.switch_on("r1", "rejection_sampling")
    executed = copy.repro()
    policies = {"sft", "pretrained", "cold", "r1-grpo-1", "r1-sft", "r1-grpo-2", "rft"}
    assert {name for name in executed if name.startswith("train@")} == {
        f"train@{name}" for name in policies
    }
    assert set(copy.read("data/report/metrics.json")["policies"]) == policies
    for seed in (0, 1):
        kept = len(
            (copy.path / f"data/pairs/r1/{seed}/demonstrations.jsonl").read_text().splitlines()
        )
        result = copy.read(f"data/policies/r1-sft/training/{seed}/metrics.json")["demonstrations"]
        assert result == kept > 0
        cold = copy.read(f"data/policies/cold/training/{seed}/metrics.json")
        assert cold["demonstrations"] == 100
    assert copy.repro() == set()
    copy.switch_on()
    assert copy.repro() == {"plan", "compare", "track"}
    assert {path.name for path in (copy.path / "data/policies").iterdir()} == {"base", "sft"}
