"""The check of tables and parameters: before any work, once for each change."""

import os

import pytest

from stages.runtime import preflight

CHECK = """
import sys
from pathlib import Path
with Path("calls").open("a") as file:
    file.write("x")
if "bad" in Path("params.yaml").read_text():
    sys.exit("params.yaml is not valid:\\n  bad: unknown key")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages/__init__.py").touch()
    (tmp_path / "stages/plan.py").write_text(CHECK)
    (tmp_path / "params.yaml").write_text("seed: 0\n")
    return tmp_path


def test_it_runs_once_for_each_state_of_parameters_and_code(folder):
    preflight.check()
    preflight.check()
    assert (folder / "calls").read_text() == "x"
    (folder / "params.yaml").write_text("seed: 1\n")
    preflight.check()
    (folder / "stages/more.py").write_text("pass\n")
    preflight.check()
    (folder / "stages/presets.yaml").write_text("dpo: {}\n")
    preflight.check()
    (folder / "dvc.yaml").write_text("stages: {}\n")
    preflight.check()
    preflight.check()
    assert (folder / "calls").read_text() == "xxxxx"
    raw = folder / "data/raw/pairs.jsonl"
    raw.parent.mkdir(parents=True)
    raw.write_text("1")
    preflight.check()
    os.utime(raw, ns=(1, 1))  # an edit of equal length
    preflight.check()
    preflight.check()
    assert (folder / "calls").read_text() == "xxxxxxx"


def test_what_is_wrong_is_told_each_time_until_it_is_right(folder):
    (folder / "params.yaml").write_text("bad: 0\n")
    for _ in range(2):
        with pytest.raises(ValueError, match="bad: unknown key"):
            preflight.check()
    assert (folder / "calls").read_text() == "xx"
    (folder / "params.yaml").write_text("seed: 0\n")
    preflight.check()


def test_a_folder_without_the_check_has_nothing_to_check(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    preflight.check()
    assert list(tmp_path.iterdir()) == []
