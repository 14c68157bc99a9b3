"""Run one stage through DVC, say what happened to it, and whether another attempt can cure it.

Plain Python: it knows neither Prefect nor the graph. Always
`dvc --wait-for-lock repro -s`: with `-s` stages that run side by side do not lock each
other's inputs, and with the flag a stage whose command has ended waits to be committed
instead of failing after hours of work.
"""

import enum
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from flows.lock import mend
from flows.process import StoppedError, child_environment, run_watched


class Outcome(enum.StrEnum):
    """What happened to a stage."""

    EXECUTED = "executed"
    """Its command ran."""
    RESTORED = "restored"
    """DVC had the result of the same inputs and checked it out."""
    SKIPPED = "skipped"
    """Nothing had changed."""
    FAILED = "failed"
    BLOCKED = "blocked"
    """Not tried, because a stage that it needs failed."""

    @property
    def good(self) -> bool:
        """Whether the stage's outputs are there and right."""
        return self in (Outcome.EXECUTED, Outcome.RESTORED, Outcome.SKIPPED)


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of one stage."""

    name: str
    outcome: Outcome
    seconds: float = 0.0
    attempts: int = 0
    reason: str = ""
    """Why it failed, or had to be tried more than once."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long to wait and how often to try again."""

    timeout_seconds: float | None = None
    """For one attempt of one stage; None waits for ever."""
    busy_seconds: float = 600.0
    """How long to keep trying while another DVC process holds a path of the stage."""
    preempted_attempts: int = 3
    """Attempts of a stage that was killed from outside; each goes on from the last checkpoint."""
    pause_seconds: float = 2.0
    """Between attempts; doubled each time for a stage that was killed."""


GIT_HINTS = frozenset(
    {
        "",
        "To track the changes with git, run:",
        "git add dvc.lock",
        "To enable auto staging, run:",
        "dvc config core.autostage true",
        "Use `dvc push` to send your updates to remote storage.",
    }
)
"""What DVC says after every stage; in a log of twenty stages it buries the rest."""
TAIL_LINES = 40


def run_stage(
    name: str,
    root: Path,
    *,
    on_line: Callable[[str], None],
    cancel: threading.Event,
    limits: Limits,
) -> Result:
    """Bring one stage up to date, whose inputs must be there already.

    A failure is a result, not an exception: the rest of the graph goes on.

    Args:
        name: as DVC addresses it.
        root: the repository.
        on_line: gets every line that DVC and the stage print.
        cancel: once set, the stage and all its processes are killed.
        limits: time and attempts.

    Raises:
        StoppedError: once `cancel` is set.
    """
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item", name]
    started = time.monotonic()
    preempted = mended = 0
    attempts = 0
    reason = ""
    while True:
        attempts += 1
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        watch = OutputWatch(name, tail, on_line)
        try:
            status = run_watched(
                command,
                cwd=root,
                env=child_environment(Path(sys.executable)),
                on_line=watch,
                cancel=cancel,
                timeout_seconds=limits.timeout_seconds,
            )
        except TimeoutError as error:
            status, trouble, reason = 1, Trouble.FINAL, f"timeout: {error}"
        else:
            output = "\n".join(tail)
            trouble = classify(status, output)
            reason = reason if status == 0 else f"{trouble.value}: {last_words(tail)}"
        seconds = time.monotonic() - started
        if status == 0:
            outcome = watch.outcome()
            return Result(
                name=name, outcome=outcome, seconds=seconds, attempts=attempts, reason=reason
            )
        preempted += trouble is Trouble.PREEMPTED
        if trouble is Trouble.TORN and mended <= preempted:  # each kill may have left one
            mend(root)
            mended += 1
            pause = 0.0
        elif trouble is Trouble.BUSY and seconds < limits.busy_seconds:
            pause = limits.pause_seconds
        elif trouble is Trouble.PREEMPTED and preempted < limits.preempted_attempts:
            pause = limits.pause_seconds * 2**preempted
        else:
            return Result(
                name=name, outcome=Outcome.FAILED, seconds=seconds, attempts=attempts, reason=reason
            )
        on_line(f"{reason}; trying again in {pause:g} s")
        if cancel.wait(pause):
            raise StoppedError(f"{name} was cancelled between two attempts")


class OutputWatch:
    """Reads from DVC's own words what it did to the stage."""

    def __init__(self, name: str, tail: "deque[str]", on_line: Callable[[str], None]) -> None:
        self.running = f"Running stage '{name}':"
        self.cached = f"Stage '{name}' is cached - skipping run"
        self.ran = False
        self.restored = False
        self.tail = tail
        self.on_line = on_line

    def __call__(self, line: str) -> None:
        """Take one line."""
        self.ran |= line.startswith(self.running)
        self.restored |= line.startswith(self.cached)
        if line.strip() not in GIT_HINTS:
            self.tail.append(line)
            self.on_line(line)

    def outcome(self) -> Outcome:
        """What a successful `dvc repro` did."""
        if self.ran:
            return Outcome.EXECUTED
        return Outcome.RESTORED if self.restored else Outcome.SKIPPED


BUSY = re.compile(r"is busy, it is being blocked by|Unable to acquire lock")
TORN = re.compile(
    r"Unable to read RWLock-file '[^']*'. JSON structure|dvc\.lock' (is invalid|validation failed)"
)
# Hang-up, kill (also the kernel's out-of-memory killer, which may take one seed alone), alarm (a
# stage that was asked to end had no time left) and terminate; a shell adds 128.
KILLED = re.compile(
    r"(failed to run: .*|process of seed \d+ ended without a word), "
    r"exited with (-1|-9|-14|-15|129|137|142|143)$",
    re.MULTILINE,
)
NO_DEVICE = re.compile(r"all CUDA-capable devices are busy or unavailable")
PREEMPTING_SIGNALS = frozenset({-1, -9, -14, -15})


class Trouble(enum.Enum):
    """Whether trying again can help."""

    BUSY = "another DVC process was using the same paths"
    TORN = "DVC was killed while it wrote a file of its own"
    PREEMPTED = "killed by a signal or by a lost device"
    FINAL = "failed"


def classify(status: int, output: str) -> Trouble:
    """Whether a `dvc repro` that ended with `status` is worth another attempt.

    An error in a stage's own code or input is final.
    """
    if BUSY.search(output):
        return Trouble.BUSY
    if TORN.search(output):
        return Trouble.TORN
    if status in PREEMPTING_SIGNALS or KILLED.search(output) or NO_DEVICE.search(output):
        return Trouble.PREEMPTED
    return Trouble.FINAL


def last_words(tail: Iterable[str]) -> str:
    """The line of the output that says most about a failure.

    A Python traceback ends in `SomeError: message`; DVC's own `ERROR:` follows it.
    """
    lines = [line.strip() for line in tail if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b.*:", line)]
    dvc = [line for line in lines if line.startswith("ERROR:")]
    return (raised or dvc or lines or ["no output"])[-1 if raised or not dvc else 0]
