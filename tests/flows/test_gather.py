"""Dependencies that stand for whatever the plan makes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows import gather

REPOSITORY = Path(__file__).resolve().parents[2]

DVC_YAML = """\
stages:
  train:
    foreach: ${plan}
    do:
      cmd: echo ${key} > data/train/${key}/run
      outs: ["data/train/${key}/run", "data/train/${key}/policy"]
  compare:
    cmd: cat stages/compare.py
    deps:
      - data/trace_code/imports/compare.json  # its code
      - data/train/old/run
    outs: [data/compare/run]
    meta: {gathers: [data/*/*/run, data/*/run]}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dvc.yaml").write_text(DVC_YAML)
    (tmp_path / "params.yaml").write_text("plan: {b: {}, a: {}}\n")
    subprocess.run(
        [sys.executable, "-m", "dvc", "init", "--no-scm", "-q"], cwd=tmp_path, check=True
    )
    shutil.copytree(REPOSITORY / "flows", tmp_path / "flows")
    return tmp_path


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.gather", *arguments]
    return subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)


def test_a_change_of_plan_is_told_and_then_written_in_one_order(root: Path) -> None:
    told = run(root, "check")
    assert told.returncode == 1
    assert "run `python -m flows.gather`" in told.stderr
    assert (root / "dvc.yaml").read_text() == DVC_YAML
    assert run(root).returncode == 0
    written = (root / "dvc.yaml").read_text()
    listed = "      - data/train/a/run\n      - data/train/b/run\n"
    assert written == DVC_YAML.replace("      - data/train/old/run\n", listed)
    assert run(root, "check").returncode == 0
    (root / "params.yaml").write_text("plan: {old: {}}\n")
    assert run(root).returncode == 0
    assert (root / "dvc.yaml").read_text() == DVC_YAML


def test_it_needs_neither_grimp_nor_stages() -> None:
    code = "import sys, flows.gather; print([m for m in ('grimp', 'stages') if m in sys.modules])"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("data/a/run", "data/*/run", True),
        ("data/a/b/run", "data/*/run", False),
        ("data/train_sft/sft/run", "data/train_*/*/run", True),
        ("data/track/sft/run", "data/train_*/*/run", False),
    ],
)
def test_a_star_stands_for_no_slash(path: str, pattern: str, expected: bool) -> None:
    assert gather.matches(path, pattern) is expected


def test_outputs_beside_what_the_plan_names_follow_it(root: Path) -> None:
    before = DVC_YAML.replace(
        "    outs: [data/compare/run]\n", "    outs:\n      - data/compare/run\n"
    )
    before = before.replace("run]}", "run], beside: {train.policy: card.md}}")
    (root / "dvc.yaml").write_text(before)
    recipes = "plan: {train: {a: {policy: train/a/policy}, b: {policy: base/tokenizer}}}\n"
    (root / "recipes.yaml").write_text(recipes)
    assert run(root).returncode == 0
    written = (root / "dvc.yaml").read_text()
    assert "    outs:\n      - data/compare/run\n      - data/train/a/card.md\n" in written
    assert run(root, "check").returncode == 0
    (root / "recipes.yaml").write_text("plan: {train: {}}\n")
    assert run(root).returncode == 0
    assert "card.md\n" not in (root / "dvc.yaml").read_text()
    (root / "recipes.yaml").write_text("plan: {train: {a: {}}}\n")
    assert "expected a word `policy` in each entry of plan.train" in run(root).stderr
    (root / "recipes.yaml").write_text("plan: {train: {a: {policy: [x]}}}\n")
    assert "expected a word `policy` in each entry of plan.train" in run(root).stderr


@pytest.mark.parametrize("plan", ["plan: *typo", "plan: {a: {}, a: {}}", "plan:"])
def test_a_plan_that_cannot_be_read_is_told_without_a_traceback(root: Path, plan: str) -> None:
    (root / "params.yaml").write_text(f"{plan}\n")
    told = run(root)
    assert told.returncode == 2
    assert "dvc cannot read the pipeline" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    ("outs", "told"),
    [
        ("    outs: []\n", "no `outs:` written as one path a line"),
        (
            "    outs:\n      - data/compare/run:\n          persist: true\n",
            "without options",
        ),
    ],
)
def test_a_list_that_cannot_be_filled_is_told(root: Path, outs: str, told: str) -> None:
    text = DVC_YAML.replace("    outs: [data/compare/run]\n", outs)
    text = text.replace("run]}", "run], beside: {train.policy: card.md}}")
    (root / "dvc.yaml").write_text(text)
    (root / "recipes.yaml").write_text("plan: {train: {a: {policy: train/a/policy}}}\n")
    found = run(root)
    assert found.returncode == 2
    assert told in found.stderr
    assert (root / "dvc.yaml").read_text() == text
