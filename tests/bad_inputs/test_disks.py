"""A stage on a disk that is full or read-only: the message names what could not be written, what
was there is as it was, and nothing half written is left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bad_inputs.test_refusals import (
    GOOD,
    ROOT,
    configure_preparation,
    list_files,
    write_earlier,
    write_rows,
)

SMALL_DISK = 2**20
pytestmark = pytest.mark.slow


def begin(folder: Path, monkeypatch) -> dict[Path, bytes]:
    """The files of `prepare_data`, and outputs of an earlier run; all that may not change."""
    monkeypatch.chdir(folder)
    configure_preparation()
    write_rows(GOOD["problems"], {})
    return write_earlier()


def run(status: int = 1) -> str:
    """The last line that `prepare_data` writes to stderr, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "stages.prepare_data"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == status, result.stderr
    return result.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize("num_free", [30_000, 0])
def test_a_disk_that_is_full(num_free, small_disk, monkeypatch):
    before = begin(small_disk, monkeypatch)
    room = os.statvfs(small_disk)
    # in 30 kB `.pipe` fits, the tokenizer does not
    Path("ballast").write_bytes(bytes(room.f_bavail * room.f_frsize - num_free))
    assert "No space" in run()
    assert list_files() == before
    Path("ballast").unlink()
    run(status=0)
    assert json.loads(Path("data/prepared/data_card.json").read_text())["counts"]["train"] > 0


def test_a_disk_that_is_read_only(small_disk, monkeypatch):
    before = begin(small_disk, monkeypatch)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert ": '.pipe" in run()
    assert list_files() == before
