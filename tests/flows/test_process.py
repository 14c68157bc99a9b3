"""A watched child: its output, its limits, and the end of all it started."""

import os
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from flows.process import StoppedError, child_environment, kill_tree, run_watched

# Prints the id of a grandchild that would live for a minute, and waits for it.
PARENT = ["sh", "-c", "sleep 60 & echo $!; wait"]


def watch(
    command: list[str],
    lines: list[str],
    *,
    cancel: threading.Event | None = None,
    timeout_seconds: float | None = None,
) -> int:
    return run_watched(
        command,
        cwd=Path.cwd(),
        env=os.environ,
        on_line=lines.append,
        cancel=cancel or threading.Event(),
        timeout_seconds=timeout_seconds,
    )


def assert_gone(pid: int) -> None:
    deadline = time.monotonic() + 5
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {pid} is still alive"
        time.sleep(0.05)


def test_output_and_errors_arrive_line_by_line_with_the_exit_status() -> None:
    lines: list[str] = []
    assert watch(["sh", "-c", "echo one; echo two >&2; printf three; exit 7"], lines) == 7
    assert lines == ["one", "two", "three"]


def test_a_timeout_ends_the_grandchild_too() -> None:
    lines: list[str] = []
    with pytest.raises(TimeoutError, match="not done after 2 s"):
        watch(PARENT, lines, timeout_seconds=2.0)
    assert_gone(int(lines[0]))


def test_cancelling_ends_the_grandchild_too() -> None:
    lines: list[str] = []
    cancel = threading.Event()
    threading.Timer(2.0, cancel.set).start()
    with pytest.raises(StoppedError):
        watch(PARENT, lines, cancel=cancel)
    assert_gone(int(lines[0]))


def test_an_error_while_forwarding_ends_the_child() -> None:
    seen: list[int] = []

    def fail(line: str) -> None:
        seen.append(int(line))
        raise RuntimeError("the log is gone")

    with pytest.raises(RuntimeError, match="the log is gone"):
        run_watched(
            PARENT,
            cwd=Path.cwd(),
            env=os.environ,
            on_line=fail,
            cancel=threading.Event(),
            timeout_seconds=None,
        )
    assert_gone(seen[0])


def test_what_ignores_a_polite_end_is_killed() -> None:
    stubborn = psutil.Popen(["sh", "-c", "trap '' INT TERM; while :; do sleep 0.1; done"])
    time.sleep(0.5)
    kill_tree(stubborn.pid, grace_seconds=0.5)
    assert stubborn.wait(timeout=5) != 0


def test_a_background_process_that_keeps_the_pipe_open_is_not_waited_for() -> None:
    lines: list[str] = []
    began = time.monotonic()
    assert watch(["sh", "-c", "sleep 30 & echo $!"], lines) == 0
    assert time.monotonic() - began < 20
    kill_tree(int(lines[0]), grace_seconds=0.1)  # sh made it ignore interrupts


def test_a_stage_finds_the_python_that_runs_the_flow() -> None:
    path = child_environment(Path(sys.executable))["PATH"]
    assert path.split(os.pathsep)[0] == str(Path(sys.executable).parent)


# A stage below a shell, as DVC starts it: it writes its state at SIGTERM, which takes a while.
SAVING = """
import signal, sys, time
def save(number, frame):
    time.sleep(10)
    open(sys.argv[1], "w").write("saved")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_a_stage_has_ten_seconds_to_write_its_checkpoint(tmp_path: Path) -> None:
    cancel = threading.Event()
    saved = tmp_path / "checkpoint"
    shell = f'"{sys.executable}" -c "$0" "$1"; exit $?'
    with pytest.raises(StoppedError):
        run_watched(
            ["sh", "-c", shell, SAVING, str(saved)],
            cwd=tmp_path,
            env=os.environ,
            on_line=lambda line: cancel.set() if line == "ready" else None,
            cancel=cancel,
            timeout_seconds=None,
        )
    assert saved.read_text() == "saved"
