"""A reward of one's own is a dependency of the rows that name it, and of no others."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_copy import ROOT, PipelineCopy
from ruamel.yaml import YAML

OWN = Path("stages/rewards/own")
ROW = {"by": "rule", "preset": "rule_own", "from": "base", "on": "own/brevity"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """trace_code, and the stage reward as it is but for what it runs and what else it reads."""
    yaml = YAML()
    every = yaml.load(ROOT / "dvc.yaml")["stages"]
    body = every["reward"]["do"]
    assert "data/${item.on}" in body["deps"]
    body["cmd"] = "echo reward@${key} >> ran && echo done > data/reward-${key}"
    body["deps"], body["outs"] = ["data/${item.on}"], ["data/reward-${key}"]
    for key in ("params", "meta"):
        del body[key]
    stages = {"trace_code": every["trace_code"], "reward": every["reward"]}
    yaml.dump({"stages": stages}, tmp_path / "dvc.yaml")
    rule = ROW | {"preset": "rule", "on": "prompts"}
    yaml.dump({"rewards": {"rule": rule, "mine": ROW}, "environments": {}}, tmp_path / "params.yaml")
    # without plan.py: these tables are not whole
    unwanted = shutil.ignore_patterns("__pycache__", "plan.py")
    shutil.copytree(ROOT / "stages", tmp_path / "stages", ignore=unwanted)
    for name in ("constraints.txt", ".dvcignore"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/prompts").write_text("prompts")
    subprocess.run(
        [sys.executable, "-m", "dvc", "init", "--no-scm", "-q"], cwd=tmp_path, check=True
    )
    return tmp_path


def ran(repository: Path) -> set[str]:
    """What `dvc repro` runs now."""
    (repository / "ran").write_text("")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(repository)}
    command = [sys.executable, "-m", "dvc", "repro", "-q"]
    subprocess.run(command, cwd=repository, env=environment, check=True)
    return set((repository / "ran").read_text().split())


@pytest.mark.slow
def test_editing_it_reruns_the_rewards_that_name_it_and_no_others(repository: Path) -> None:
    assert ran(repository) == {"reward@rule", "reward@mine"}
    assert ran(repository) == set()
    file = repository / OWN / "brevity.py"
    before = file.read_text()
    file.write_text(before.replace("1.0 -", "2.0 -"))
    assert ran(repository) == {"reward@mine"}
    file.write_text(before)
    assert ran(repository) == set(), "changed back: restored"
    (repository / OWN / "another.py").write_text("def reward(prompt, completion): return 0.0\n")
    assert ran(repository) == set(), "a file that nothing names"


@pytest.mark.slow
@pytest.mark.rotating
def test_in_the_pipeline(pipeline_copy: Callable[..., PipelineCopy]) -> None:
    """README's steps: a file, a row, a run; then an edit, and one that breaks."""

    def two_policies(params: dict[str, Any], _: dict[str, Any]) -> None:
        params["rewards"]["mine"] = ROW
        params["policies"]["mine"] = params["policies"]["grpo"] | {"on": "rewards/mine"}

    copy = pipeline_copy(two_policies)
    stages = ("train@grpo", "train@mine")

    def repro() -> set[str]:
        copy.run("-m", "dvc", "repro", *stages)
        result = {name: execution for name, execution in copy.records().items() if name in stages}
        executed = {name for name, execution in result.items() if execution not in copy.executions}
        copy.executions |= set(result.values())
        return executed

    assert repro() == set(stages)
    journal = (copy.path / "data/journals/train/mine/journal-seed-0.jsonl").read_text()
    assert "reward/own" in journal
    file = copy.path / OWN / "brevity.py"
    text = file.read_text()
    file.write_text(text.replace("1.0 -", "2.0 -"))
    assert repro() == {"train@mine"}
    file.write_text(text.replace("len(prompt.question)", "0"))
    with pytest.raises(AssertionError, match=r"component 'own' .*ZeroDivisionError.*completion 0"):
        copy.run("-m", "dvc", "repro", *stages)
