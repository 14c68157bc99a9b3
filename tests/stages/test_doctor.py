"""The command itself, on this repository's own files with one row and few problems."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages import doctor as doctor_module

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copied(tmp_path):
    """The files that doctor reads; code is read where it is."""
    for name in ("dvc.yaml", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "stages", tmp_path / "stages", ignore=shutil.ignore_patterns("__pyc*"))
    yaml = YAML()
    content = yaml.load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    content["policies"] = {"sft": content["policies"]["sft"]}
    for table in ("pools", "pairs", "steps", "rewards"):
        content[table] = {}
    content["data"]["source"]["num_problems"] = 800
    with (tmp_path / "params.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(content, file)
    return tmp_path


def test_a_problem_of_several_stages_is_listed_once():
    problems = [("train@a", "no room"), ("train@b", "no loss"), ("sample@a", "no room")]
    assert doctor_module.join_problems(problems) == [
        "train@a, sample@a: no room",
        "train@b: no loss",
    ]


def change(folder, **data):
    """The section `data` of params.yaml."""
    yaml = YAML()
    content = yaml.load((folder / "params.yaml").read_text(encoding="utf-8"))
    content["data"] |= data
    with (folder / "params.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(content, file)


def problems(folder, *solutions):
    """A file of them, as section `data` names it."""
    rows = [
        {
            "question": f"What is {n} plus 3?",
            "answer": str(n + 3),
            "solution": solutions[n % 2].replace("#### 3", f"#### {n + 3}"),
        }
        for n in range(400)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "data/raw").mkdir(parents=True, exist_ok=True)
    (folder / "data/raw/mine.jsonl").write_text(text, encoding="utf-8")
    change(folder, source={"path": "data/raw/mine.jsonl", "licence": "CC0-1.0"}, mixture=None)


def doctor(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "stages.doctor", *words], cwd=folder, capture_output=True, text=True,
        check=False, env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "140"},
    )  # fmt: skip


@pytest.mark.slow
def test_before_anything_ran(copied):
    completed = doctor(copied)
    assert completed.returncode == 0, completed.stderr
    assert "train@sft" in completed.stdout
    assert "'<|end|>'" in completed.stdout
    assert "#### " in completed.stdout  # a demonstration
    assert "No problem was found" in completed.stdout
    assert not (copied / "data").exists()  # nothing that a stage reads


@pytest.mark.slow
def test_what_does_not_fit_is_an_error(copied):
    completed = doctor(copied, "--gpu-gib", "0.001")
    assert completed.returncode == 1
    assert "train@sft: update takes" in completed.stderr
    assert "gradient_checkpointing: true" in completed.stderr


@pytest.mark.slow
def test_what_prepare_data_would_refuse_is_refused(copied):
    problems(copied, "who knows", "who knows")
    completed = doctor(copied)
    assert completed.returncode == 1
    assert "the answer checker reads a final answer in 0.0%" in completed.stderr
    problems(copied, "#### 3", f"It is{' very' * 80} long. #### 3")
    completed = doctor(copied)
    assert completed.returncode == 1
    assert "data.max_bad_share" in completed.stderr


@pytest.mark.slow
def test_rows_of_another_source_are_not_read(copied):
    (copied / "data/demonstrations").mkdir(parents=True)
    (copied / "data/demonstrations/demonstrations.jsonl").write_text("{}\n", encoding="utf-8")
    problems(copied, "We add them. #### 3", "We add them. #### 3")
    completed = doctor(copied)
    assert completed.returncode == 0, completed.stderr
    assert "We add them. #### " in completed.stdout
