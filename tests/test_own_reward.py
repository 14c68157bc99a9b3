"""A reward of one's own is a dependency of the entries that name it, and of no others."""

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
BRIEF = {"reward": "rule_own", "own": "brevity"}
NONE = {"reward": "rule", "own": "none"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """trace_code, and train_ppo and train_grpo as they are but for what they run and compute."""
    yaml = YAML()
    every = yaml.load(ROOT / "dvc.yaml")["stages"]
    stages = {name: every[name] for name in ("trace_code", "train_ppo", "train_grpo")}
    for name in ("train_ppo", "train_grpo"):
        body = stages[name]["do"]
        body["cmd"] = f"echo {name}@${{key}} >> ran && echo done > data/{name}-${{key}}"
        own = [dep for dep in body["deps"] if "own/" in dep]
        assert own == ["data/trace_code/imports/rewards/own/${item.own}.json"]
        body["deps"], body["outs"] = own, [f"data/{name}-${{key}}"]
        for key in ("params", "metrics", "meta"):
            del body[key]
    yaml.dump({"stages": stages}, tmp_path / "dvc.yaml")
    plan = {"train_ppo": {"ppo": NONE, "mine": BRIEF}, "train_grpo": {"grpo": NONE, "mine": BRIEF}}
    yaml.dump({"plan": plan}, tmp_path / "params.yaml")
    # without check_params: this plan is none
    unwanted = shutil.ignore_patterns("__pycache__", "check_params.py")
    shutil.copytree(ROOT / "stages", tmp_path / "stages", ignore=unwanted)
    for name in ("constraints.txt", ".dvcignore"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "data").mkdir()
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


def test_editing_it_reruns_the_entries_that_name_it_and_no_others(repository: Path) -> None:
    everything = {
        f"train_{method}@{name}" for method in ("ppo", "grpo") for name in ("mine", method)
    }
    assert ran(repository) == everything
    assert ran(repository) == set()
    file = repository / OWN / "brevity.py"
    before = file.read_text()
    file.write_text(before.replace("1.0 -", "2.0 -"))
    assert ran(repository) == {"train_ppo@mine", "train_grpo@mine"}
    file.write_text(before)
    assert ran(repository) == set(), "changed back: restored"
    (repository / OWN / "another.py").write_text("def reward(prompt, completion): return 0.0\n")
    assert ran(repository) == set(), "a file that nothing names"


@pytest.mark.slow
def test_in_the_pipeline(pipeline_copy: Callable[..., PipelineCopy]) -> None:
    """README's steps: a file, a word, a run; then an edit, and one that breaks."""

    def two_policies(params: dict[str, Any]) -> None:
        plan = params["plan"]
        plan["train_grpo"]["grpo"] |= BRIEF
        plan["train_grpo"]["plain"] = plan["train_grpo"]["grpo"] | NONE

    copy = pipeline_copy(two_policies)
    copy.run("-m", "flows.gather")
    stages = ("train_grpo@grpo", "train_grpo@plain")

    def repro() -> set[str]:
        copy.run("-m", "dvc", "repro", *stages)
        found = {name: execution for name, execution in copy.records().items() if name in stages}
        executed = {name for name, execution in found.items() if execution not in copy.executions}
        copy.executions |= set(found.values())
        return executed

    assert repro() == set(stages)
    journal = (copy.path / "data/train_grpo/grpo/run/journal.jsonl").read_text()
    assert "reward/own" in journal
    file = copy.path / OWN / "brevity.py"
    text = file.read_text()
    file.write_text(text.replace("1.0 -", "2.0 -"))
    assert repro() == {"train_grpo@grpo"}
    file.write_text(text.replace("len(prompt.question)", "0"))
    with pytest.raises(AssertionError, match=r"component 'own' .*ZeroDivisionError.*completion 0"):
        copy.run("-m", "dvc", "repro", *stages)
