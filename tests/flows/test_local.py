"""Stages side by side give what `dvc repro` gives."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil


def local(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.local", *arguments]
    return subprocess.run(
        command, cwd=root, check=False, capture_output=True, text=True, timeout=400
    )


def test_parallel_and_serial_runs_write_the_same_lock(
    checkout_with_flows: Path, started: Callable[[], list[str]]
) -> None:
    root = checkout_with_flows
    result = local(root, "-j", "3")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "4 executed" in result.stdout
    assert "side@left | working on data/side/left" in result.stdout
    parallel = (root / "dvc.lock").read_bytes()
    outputs = [path.read_bytes() for path in sorted((root / "data").rglob("out.txt"))]
    assert sorted(started()) == ["left", "prepare", "right", "track"]

    for path in (root / "data", root / ".dvc/cache"):
        shutil.rmtree(path)
    (root / "dvc.lock").unlink()
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=root, check=True)
    assert len(started()) == 8, "the serial run must really have run"
    assert locked(root) == locked(root, parallel)
    assert [path.read_bytes() for path in sorted((root / "data").rglob("out.txt"))] == outputs

    again = local(root)
    assert "4 skipped" in again.stdout
    assert len(started()) == 8


def locked(root: Path, content: bytes | None = None) -> dict[str, object]:
    """The entries of a dvc.lock; their order in the file is the order in which stages ended."""
    from ruamel.yaml import YAML

    text = (root / "dvc.lock").read_bytes() if content is None else content
    return YAML(typ="safe").load(text)["stages"]


def test_a_failure_blocks_its_descendants_and_the_exit_status_says_so(
    checkout_with_flows: Path, set_params: Callable[..., None]
) -> None:
    set_params(left={"mode": "value_error"})
    result = local(checkout_with_flows)
    assert result.returncode == 1
    assert "2 executed, 1 failed, 1 blocked" in result.stdout
    assert "ValueError" in result.stdout


def test_ending_the_run_ends_its_stages(
    checkout_with_flows: Path, set_params: Callable[..., None]
) -> None:
    set_params(left={"mode": "spawn"})
    command = [sys.executable, "-m", "flows.local", "side@left"]
    flow = subprocess.Popen(command, cwd=checkout_with_flows, stdout=subprocess.PIPE)
    pid_file = checkout_with_flows / "grandchild.pid"
    deadline = time.monotonic() + 200
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < deadline, "the stage did not start in 200 s"
        time.sleep(0.1)
    grandchild = psutil.Process(int(pid_file.read_text()))
    flow.send_signal(signal.SIGTERM)
    flow.communicate(timeout=120)
    assert flow.returncode == 128 + signal.SIGTERM
    psutil.wait_procs([grandchild], timeout=5)
    assert not grandchild.is_running()


def test_a_wrong_stage_is_named_with_those_there_are(checkout_with_flows: Path) -> None:
    result = local(checkout_with_flows, "trian")
    assert result.returncode == 2
    assert "no stage 'trian'" in result.stderr
    assert "side@left" in result.stderr
