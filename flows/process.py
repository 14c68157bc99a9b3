"""Run a child so that it can be watched, timed out and cancelled, with all it started."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

POLL_SECONDS = 0.2
GRACE_SECONDS = 12.0
"""Before SIGKILL: a stage writes its checkpoint within 10, then DVC releases its locks."""


class StoppedError(Exception):
    """The run was told to stop; the child and all its descendants are gone."""


def run_watched(
    command: list[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    on_line: Callable[[str], None],
    cancel: threading.Event,
    timeout_seconds: float | None,
) -> int:
    """Run `command`, pass each line of its output to `on_line`, return its exit status.

    The child stays in our session and process group: an interrupt from the terminal
    or a process worker reaches it too, where one in its own session would survive.

    Raises:
        TimeoutError: after `timeout_seconds`.
        StoppedError: soon after `cancel` is set.
    """
    started = time.monotonic()
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    reader = threading.Thread(target=read_lines, args=(child, lines), daemon=True)
    reader.start()
    try:
        # Polling, because nothing can interrupt a thread that blocks in wait().
        while child.poll() is None:
            forward(lines, on_line, wait=POLL_SECONDS)
            if cancel.is_set():
                raise StoppedError(f"cancelled after {time.monotonic() - started:.0f} s")
            if timeout_seconds is not None and time.monotonic() - started > timeout_seconds:
                raise TimeoutError(f"not done after {timeout_seconds:g} s")
    except BaseException:
        kill_tree(child.pid)
        child.wait()
        raise
    # A background process that outlives the child may hold the pipe open: do not wait for it.
    reader.join(timeout=2.0)
    forward(lines, on_line, wait=0.0)
    return child.returncode


def read_lines(child: subprocess.Popen[str], lines: "queue.SimpleQueue[str]") -> None:
    """Move the child's output into a queue until it ends, and close the pipe."""
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            lines.put(line.rstrip("\n"))


def forward(
    lines: "queue.SimpleQueue[str]", on_line: Callable[[str], None], *, wait: float
) -> None:
    """Pass on what has arrived; wait at most `wait` seconds for the first line."""
    try:
        on_line(lines.get(timeout=wait) if wait else lines.get_nowait())
        while True:
            on_line(lines.get_nowait())
    except queue.Empty:
        return


def kill_tree(pid: int, grace_seconds: float = GRACE_SECONDS) -> None:
    """End the process and all its descendants; SIGKILL for what is left after a while.

    The process itself gets an interrupt, its descendants SIGTERM: DVC then sees its command
    fail and puts its own files in order. A SIGTERM would end DVC on the spot, and a list of
    locks that it was writing stays cut off and stops every later `dvc`.
    """
    try:
        root = psutil.Process(pid)
        below = root.children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for process in below:
        signal_if_alive(process, signal.SIGTERM)
    signal_if_alive(root, signal.SIGINT)
    tree = [*below, root]
    # One that was started between the listing and the signal is found by looking again.
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline:
        _, alive = psutil.wait_procs(tree, timeout=POLL_SECONDS)
        late = [new for old in alive for new in children_of(old) if new not in tree]
        for process in late:
            signal_if_alive(process, signal.SIGTERM)
        tree = [*alive, *late]
        if not tree:
            return
    for process in tree:
        signal_if_alive(process, signal.SIGKILL)
    psutil.wait_procs(tree, timeout=GRACE_SECONDS)


def children_of(process: psutil.Process) -> list[psutil.Process]:
    """All its descendants; none if it has ended."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def signal_if_alive(process: psutil.Process, number: int) -> None:
    """Send a signal to a process that may have ended meanwhile."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def exit_when_terminated() -> None:
    """Make SIGTERM an orderly exit, so that children and temporary servers are ended too.

    Python's default ends the process on the spot and leaves them behind.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def child_environment(executable: Path) -> dict[str, str]:
    """Our environment, with `executable`'s folder first in PATH.

    So a stage's `python` is the interpreter that runs the flow, even where its
    environment is not activated.
    """
    path = os.pathsep.join([str(executable.parent), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", "DVC_NO_ANALYTICS": "1"}
