"""What is written of each entry point of this repository."""

import hashlib
import json
from pathlib import Path

import pytest

from flows.graph import read_graph
from stages import trace_code

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trace_code, "ROOT", REPOSITORY)
    trace_code.main()
    return tmp_path / "data"


def test_each_stage_has_the_digests_of_the_files_that_it_reads(data: Path) -> None:
    read = json.loads((data / "code/train_dpo.json").read_text())
    needed = {"stages/train_dpo.py", "stages/params.py", "stages/rows.py", "constraints.txt"}
    assert needed <= set(read)
    assert [file for file in read if file.startswith("stages/algorithms/")]
    assert not [file for file in read if file.startswith(("stages/runtime/", "stages/train_ppo"))]
    for file, digest in read.items():
        assert digest == hashlib.sha256((REPOSITORY / file).read_bytes()).hexdigest()


def test_every_file_of_code_that_dvc_yaml_names_is_written(data: Path) -> None:
    written = {path.relative_to(data).as_posix() for path in data.rglob("*.json")}
    for node in read_graph(REPOSITORY).values():
        named = {dep.removeprefix("data/") for dep in node.deps if dep.startswith("data/code/")}
        assert named <= written, node.name


def test_so_is_each_file_that_a_row_may_name(data: Path) -> None:
    assert "stages/rewards/own/brevity.py" in (data / "own/brevity").read_text()
    assert "rewards/own/" not in (data / "code/train_grpo.json").read_text()


def test_neither_plan_nor_trace_code_has_one(data: Path) -> None:
    assert {"plan", "trace_code"}.isdisjoint(path.stem for path in data.glob("code/*.json"))
