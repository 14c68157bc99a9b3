"""A child process: its output, its limits, and the end of all its descendants."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from clones import wait_until

from flows.process import Runner, StoppedError, child_environment, kill_tree
from stages.runtime.process import FLOW

# Prints the id of a grandchild that would live for a minute, and waits for it.
PARENT = ["sh", "-c", "sleep 60 & echo $!; wait"]


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(root=tmp_path)


def assert_ends(pid: int) -> None:
    def is_gone() -> bool:
        return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    wait_until(is_gone, 5, f"the end of process {pid}")


def test_output_and_errors_arrive_line_by_line_with_the_exit_status(runner: Runner) -> None:
    lines: list[str] = []
    command = ["sh", "-c", "echo one; echo two >&2; printf three; exit 7"]
    assert runner.run(command, lines.append) == 7
    assert lines == ["one", "two", "three"]


def ignore(runner: Runner, line: str) -> None:
    pass


def cancel(runner: Runner, line: str) -> None:
    runner.cancel.set()


def fail(runner: Runner, line: str) -> None:
    raise RuntimeError("the log is gone")


@pytest.mark.parametrize(
    ("on_line", "error", "message"),
    [
        (ignore, TimeoutError, "not done after 2 s"),
        (cancel, StoppedError, "cancelled after"),
        (fail, RuntimeError, "the log is gone"),
    ],
)
def test_timeout_cancellation_and_an_error_end_the_grandchild_too(
    runner: Runner,
    on_line: Callable[[Runner, str], None],
    error: type[Exception],
    message: str,
) -> None:
    pids: list[int] = []

    def take(line: str) -> None:
        pids.append(int(line))
        on_line(runner, line)

    with pytest.raises(error, match=message):
        runner.run(PARENT, take, timeout_seconds=2.0)
    assert_ends(pids[0])


def test_a_process_that_ignores_the_signals_is_killed() -> None:
    stubborn = psutil.Popen(["sh", "-c", "trap '' INT TERM; while :; do sleep 0.1; done"])
    time.sleep(0.5)
    kill_tree(stubborn.pid, grace_seconds=0.5)
    assert stubborn.wait(timeout=5) != 0


def test_a_background_process_that_keeps_the_pipe_open_is_not_waited_for(runner: Runner) -> None:
    lines: list[str] = []
    started = time.monotonic()
    assert runner.run(["sh", "-c", "sleep 30 & echo $!"], lines.append) == 0
    assert time.monotonic() - started < 20
    kill_tree(int(lines[0]), grace_seconds=0.1)  # sh made it ignore interrupts


def test_a_child_is_told_which_flow_started_it() -> None:
    """By it its stages find the fork server of the flow."""
    assert child_environment()[FLOW] == str(os.getpid())


def test_a_stage_finds_the_python_that_runs_the_flow() -> None:
    path = child_environment()["PATH"]
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
def test_a_stage_has_ten_seconds_to_write_its_checkpoint(runner: Runner) -> None:
    saved = runner.root / "checkpoint"
    command = ["sh", "-c", f'"{sys.executable}" -c "$0" "$1"; exit $?', SAVING, str(saved)]
    with pytest.raises(StoppedError):
        runner.run(command, lambda line: runner.cancel.set() if line == "ready" else None)
    assert saved.read_text() == "saved"
