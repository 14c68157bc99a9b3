"""What is written of each entry point of this repository."""

import hashlib
import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages import trace_code

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trace_code, "ROOT", REPOSITORY)
    trace_code.main()
    return tmp_path / "data/trace_code/imports"


def test_each_stage_has_the_digests_of_the_files_that_it_reads(imports: Path) -> None:
    stages = set(YAML(typ="safe").load(REPOSITORY / "dvc.yaml")["stages"])
    assert {path.stem for path in imports.glob("*.json")} == stages
    read = json.loads((imports / "train_dpo.json").read_text())
    needed = {
        "stages/train_dpo.py", "stages/params.py", "stages/algorithms/losses/preference_losses.py",
        "constraints.txt",
    }  # fmt: skip
    assert needed <= set(read)
    assert not [file for file in read if file.startswith(("stages/runtime/", "stages/train_ppo"))]
    for file, digest in read.items():
        assert digest == hashlib.sha256((REPOSITORY / file).read_bytes()).hexdigest()


def test_so_has_each_file_that_an_entry_may_name(imports: Path) -> None:
    assert "stages/rewards/own/brevity.py" in (imports / "rewards/own/brevity.json").read_text()
    assert "rewards/own/" not in (imports / "train_grpo.json").read_text()
