"""Child processes: logged line by line, with a time limit, ended with all their descendants."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

POLL_SECONDS = 0.2
GRACE_SECONDS = 80.0
"""Seconds before SIGKILL: a stage stops in 10 and writes its checkpoint in 60; DVC ends last."""
PROGRESS, SEPARATOR = {"POSTTRAIN_PROGRESS": "records"}, "\x1e"
"""Environment in which a stage writes its progress as JSON, after a record separator."""
FLOW = "POSTTRAIN_FLOW"
"""Variable with the flow's process id, by which its stages share one fork server."""
DVC = (sys.executable, "-m", "dvc", "--wait-for-lock")
"""DVC's command; with this option it waits for the repository's lock, else it fails after 3 s."""


class StoppedError(Exception):
    """Cancellation: the child process and all its descendants have ended."""


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Runner of commands in a repository; several threads may use it at the same time."""

    root: Path
    """Folder of the repository, in which commands run."""
    log: Callable[[str], None] = print
    """Function that is called with each line that a user should see."""
    cancel: threading.Event = field(default_factory=threading.Event)
    """Event that ends every running command and every pause."""
    timeout_hours: float | None = None
    """Limit for one attempt of one stage; None: no limit."""
    show: Callable[[dict[str, Any]], None] | None = None
    """Function that is called with a stage's progress, about once a second; it replaces lines."""
    pause_seconds: float = 2.0
    """Pause before the next attempt of a stage; doubled each time if the stage was killed."""

    def run(
        self, command: list[str], on_line: Callable[[str], None], timeout_hours: float | None = None
    ) -> int:
        """Run `command`; returns its exit status. Each line of output goes to `on_line`.

        The child stays in our session and process group, so that an interrupt from the terminal or
        from a Prefect worker also reaches it; in a new session it would survive.

        Raises:
            TimeoutError: after `timeout_hours`; the process tree has ended.
            StoppedError: soon after `cancel` is set; the process tree has ended.
        """

        def take(line: str) -> None:
            text, separator, record = line.partition(SEPARATOR)
            if separator and self.show is not None:
                with suppress(json.JSONDecodeError):  # a full pipe mixed two records
                    self.show(json.loads(record))
            if text or not separator:
                on_line(text)

        started = time.monotonic()
        child = subprocess.Popen(
            command,
            cwd=self.root,
            env=child_environment() | ({} if self.show is None else PROGRESS),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        reader = threading.Thread(target=queue_lines, args=(child, lines), daemon=True)
        reader.start()
        try:
            # Polls, because nothing can interrupt a thread that blocks in wait().
            while child.poll() is None:
                forward(lines, take, POLL_SECONDS)
                if self.cancel.is_set():
                    raise StoppedError("cancelled")
                seconds = time.monotonic() - started
                if timeout_hours is not None and seconds > 3600 * timeout_hours:
                    raise TimeoutError(f"not done after {seconds:.0f} s")
        except BaseException:
            kill_tree(child.pid)
            child.wait()
            raise
        finally:  # the last lines are about saved states
            # A background process that outlives the child may hold the pipe open: a short wait.
            reader.join(timeout=2.0)
            forward(lines, take, 0.0)
        return child.returncode

    def pause(self, seconds: float) -> None:
        """Wait.

        Raises:
            StoppedError: as soon as `cancel` is set.
        """
        if self.cancel.wait(seconds):
            raise StoppedError("cancelled between two attempts")


def queue_lines(child: subprocess.Popen[str], lines: "queue.SimpleQueue[str]") -> None:
    """Put the child's output into a queue until it ends, and close the pipe."""
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            lines.put(line.rstrip("\n"))


def forward(
    lines: "queue.SimpleQueue[str]", on_line: Callable[[str], None], seconds: float
) -> None:
    """Pass queued lines to `on_line`; wait at most `seconds` for the first."""
    with suppress(queue.Empty):
        on_line(lines.get(block=seconds > 0, timeout=seconds))
        while True:
            on_line(lines.get_nowait())


def kill_tree(pid: int, grace_seconds: float = GRACE_SECONDS) -> None:
    """End a process and all its descendants; send SIGKILL to those alive after `grace_seconds`.

    The process gets SIGINT and its descendants SIGTERM: DVC then sees its command fail and releases
    its locks. SIGTERM would end DVC at once, perhaps while it writes its list of locks, and a
    truncated list makes every later `dvc` command fail.
    """
    try:
        root = psutil.Process(pid)
        tree = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    signalled: set[psutil.Process] = set()
    deadline = time.monotonic() + grace_seconds
    while tree and time.monotonic() < deadline:
        for process in tree:
            if process not in signalled:
                signal_if_alive(process, signal.SIGINT if process == root else signal.SIGTERM)
        signalled.update(tree)
        _, alive = psutil.wait_procs(tree, timeout=POLL_SECONDS)
        tree = list(alive)
        for process in alive:  # a child that started between the listing and the signal
            with suppress(psutil.NoSuchProcess):
                tree += [new for new in process.children(recursive=True) if new not in tree]
    for process in tree:
        signal_if_alive(process, signal.SIGKILL)
    psutil.wait_procs(tree, timeout=GRACE_SECONDS)


def signal_if_alive(process: psutil.Process, number: int) -> None:
    """Send a signal to a process that may have ended meanwhile."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def exit_when_terminated() -> None:
    """Make SIGTERM and SIGHUP raise SystemExit, so that child processes and servers also end.

    Python's default ends the process at once and leaves them running. SIGHUP, the end of the
    terminal, stays ignored under nohup.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def child_environment() -> dict[str, str]:
    """Environment of a child: this process's, with the folder of its interpreter first in PATH.

    So a stage's `python` is the flow's interpreter, even if its environment is not activated.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {
        "PATH": path, "PYTHONUNBUFFERED": "1", "DVC_NO_ANALYTICS": "1", FLOW: str(os.getpid()),
    }  # fmt: skip
