"""Stages on a disk that is full, read-only or not theirs: the message names what could not be
written, what was there is as it was, and nothing half written is left."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from bad_inputs.test_refusals import EARLIER, GOOD, configure_preparation, write_rows

ROOT = Path(__file__).parents[2]
NOBODY = 65534
SMALL_DISK = 2**20


def begin(folder: Path, monkeypatch) -> dict[str, bytes]:
    """The files of `prepare_data`, and outputs of an earlier run; all that may not change."""
    monkeypatch.chdir(folder)
    configure_preparation()
    write_rows(GOOD["problems"], {})
    for name, text in EARLIER.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    return outputs()


def outputs() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path("data").rglob("*") if path.is_file()}


def run(command: Sequence[str] = (sys.executable, "-m", "stages.prepare_data")) -> str:
    """What `prepare_data` says as it fails, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 1, result.stderr
    return result.stderr.strip().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("num_free", [30_000, 0])
def test_a_disk_that_is_full(num_free, small_disk, monkeypatch):
    before = begin(small_disk, monkeypatch)
    room = os.statvfs(small_disk)
    # in 30 kB `.pipe` fits, the tokenizer does not
    Path("ballast").write_bytes(bytes(room.f_bavail * room.f_frsize - num_free))
    assert "No space left on device" in run()
    assert outputs() == before
    Path("ballast").unlink()
    subprocess.run(
        [sys.executable, "-m", "stages.prepare_data"], check=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert json.loads(Path("data/prepared/data_card.json").read_text())["counts"]["train"] > 0


@pytest.mark.slow
def test_a_disk_that_is_read_only(small_disk, monkeypatch):
    before = begin(small_disk, monkeypatch)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert "Read-only file system: '.pipe" in run()
    assert outputs() == before


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"),
    reason="to give a folder to somebody else takes root, and setpriv",
)
def test_a_folder_of_somebody_else(tmp_path, monkeypatch):
    before = begin(tmp_path, monkeypatch)
    tmp_path.chmod(0o755)  # pytest makes it its owner's alone
    os.chown(tmp_path, NOBODY, NOBODY)
    # root as others are: it may write what is its own alone, and still reads its interpreter
    everybody = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", sys.executable]
    assert "Permission denied: '.pipe" in run([*everybody, "-m", "stages.prepare_data"])
    assert outputs() == before
