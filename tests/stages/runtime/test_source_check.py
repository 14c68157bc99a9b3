"""Code that DVC has read, and code that was edited since."""

import hashlib
import json
from pathlib import Path

import pytest

from stages.runtime import source_check

TRACED = "data/code/train.json"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source file that the trace knows."""
    monkeypatch.chdir(tmp_path)
    file = Path("train.py")
    file.write_text("rate = 1\n")
    traced = Path(TRACED)
    traced.parent.mkdir(parents=True)
    traced.write_text(json.dumps({"train.py": hashlib.sha256(b"rate = 1\n").hexdigest()}))
    return file


def test_what_was_not_edited_passes(source: Path) -> None:
    source_check.check([TRACED, "data/other/train.jsonl"])
    source.touch()
    source_check.check([TRACED])


def test_what_was_edited_or_removed_is_refused_with_the_remedy(source: Path) -> None:
    source.write_text("rate = 2\n")
    with pytest.raises(ValueError, match=r"train\.py was edited after.*`dvc repro` again"):
        source_check.check([TRACED])
    source.unlink()
    with pytest.raises(ValueError, match=r"train\.py was edited"):
        source_check.check([TRACED])


def test_a_stage_without_a_trace_is_not_checked(source: Path) -> None:
    source.write_text("rate = 2\n")
    source_check.check(["data/other/train.jsonl"])
