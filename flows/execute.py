"""Execution of one stage through DVC: its outcome, and further attempts if they can help.

The command is always `dvc --wait-for-lock repro -s`. With `-s`, stages that run at the same time do
not lock each other's inputs. With `--wait-for-lock`, a stage waits after its command until it can
be committed; without it the stage would fail after hours of work.
"""

import enum
import os
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flows import dvc_internals
from flows.process import DVC, Runner

LONG_PAUSE = 15
"""Number of pauses before a seed checks again whether another one in this clone has ended, and
before a stage checks again whether a shared GPU has room."""
BUSY_SECONDS = 600.0
"""Seconds for which a stage is retried while another DVC process uses one of its paths."""
MAX_KILLS = 3
"""Number of kills after which a stage has failed; each attempt resumes from the last checkpoint."""
TAIL_LINES = 40


class StageOutcome(enum.StrEnum):
    """Outcome of a stage."""

    EXECUTED = "executed"
    """Its command ran."""
    RESTORED = "restored"
    """DVC had a result for the same inputs and checked it out."""
    SKIPPED = "skipped"
    """Nothing had changed."""
    FAILED = "failed"
    BLOCKED = "blocked"
    """Not executed, because a stage that it needs failed."""

    @property
    def good(self) -> bool:
        """Whether the stage's outputs exist and are up to date."""
        return self in (StageOutcome.EXECUTED, StageOutcome.RESTORED, StageOutcome.SKIPPED)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Outcome of a stage, with its duration and number of attempts."""

    outcome: StageOutcome
    seconds: float = 0.0
    attempts: int = 0
    reason: str = ""
    """Reason why it failed, or needed more than one attempt."""


class Trouble(enum.Enum):
    """Cause of a failed attempt, which decides whether another attempt can help."""

    BUSY = "another DVC process was using the same paths"
    TORN = "DVC was killed while it wrote a file of its own"
    PREEMPTED = "killed by a signal or by a lost device"
    FULL = "the GPU's memory was full, of which other processes hold a part"
    FINAL = "failed"


KILLS = (-1, -9, -14, -15, 129, 137, 142, 143)
"""Exit statuses after SIGHUP, SIGKILL (also from the kernel's out-of-memory killer, which may end a
single seed, or the check of the plan), SIGALRM (a stage did not end in time) and SIGTERM; a shell
adds 128.
"""
KILLED = re.compile(
    r"(failed to run: .*|ended without a word), "
    rf"exited with ({'|'.join(map(str, KILLS))})$",
    re.MULTILINE,
)
IN_USE = re.compile(r"stage '[^']*' is running already, with ")
NO_DEVICE = re.compile(r"all CUDA-capable devices are busy or unavailable")
SEEDS_PER_GPU = "POSTTRAIN_SEEDS_PER_GPU"
OUT_OF_MEMORY = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
)
MAX_FULL = 5
"""Number of attempts with a shared GPU's memory full after which a stage has failed."""


def run_stage(name: str, runner: Runner, seed: int | None = None) -> Result:
    """Bring one stage up to date, or finish one of its seeds; its inputs must be up to date.

    A failure is a result, not an exception: stages that do not need this one go on. A seed waits
    while another seed of the stage is computed in this clone.

    Raises:
        StoppedError: once `runner.cancel` is set.
    """
    started = time.monotonic()
    give_up = started + BUSY_SECONDS
    is_shared = os.environ.get(SEEDS_PER_GPU, "1") != "1"
    troubles: Counter[Trouble] = Counter()
    reason = ""
    is_seed = seed is not None
    command = [*DVC, "repro", "--single-item", name]
    if is_seed:
        command = [sys.executable, "-m", "flows.seeds", name, str(seed)]
    while True:
        output = StageOutput(name, runner.log)
        try:
            status = runner.run(command, output.add_line, runner.timeout_hours)
            trouble = classify(status, "\n".join(output.tail), is_gpu_shared=is_shared)
            if status != 0:
                reason = f"{trouble.value}: {find_error(output.tail)}"
        except TimeoutError as error:
            status, trouble, reason = 1, Trouble.FINAL, f"timeout: {error}"
        now = time.monotonic()
        if trouble is not Trouble.BUSY:
            give_up = now + BUSY_SECONDS
        attempts = troubles.total() + 1
        troubles[trouble] += 1
        # Whether another attempt can help, and the number of pauses before it. Each kill may have
        # truncated a file of DVC, and so may the kill of an earlier run.
        is_worth_retrying, num_pauses = {
            Trouble.BUSY: (now < give_up or is_seed, LONG_PAUSE if is_seed else 1),
            Trouble.TORN: (troubles[Trouble.TORN] <= troubles[Trouble.PREEMPTED] + 1, 0),
            Trouble.PREEMPTED: (troubles[trouble] < MAX_KILLS, 2 ** troubles[trouble]),
            Trouble.FULL: (troubles[trouble] < MAX_FULL, LONG_PAUSE),
            Trouble.FINAL: (False, 0),
        }[trouble]
        if status == 0 or not is_worth_retrying:
            outcome = StageOutcome.EXECUTED if is_seed else output.outcome
            outcome = outcome if status == 0 else StageOutcome.FAILED
            return Result(outcome=outcome, seconds=now - started, attempts=attempts, reason=reason)
        if trouble is Trouble.TORN:
            dvc_internals.mend(runner.root)
        pause = num_pauses * runner.pause_seconds
        runner.log(f"{reason}; trying again in {pause:g} s")
        runner.pause(pause)


class StageOutput:
    """Output of one attempt: its last lines, and the outcome according to DVC's messages."""

    def __init__(self, name: str, log: Callable[[str], None]) -> None:
        self.running = dvc_internals.RUNNING.format(name)
        self.restored = dvc_internals.RESTORED.format(name)
        self.outcome = StageOutcome.SKIPPED
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.log = log

    def add_line(self, line: str) -> None:
        """Log a line, unless it is one of DVC's hints about git."""
        if line.startswith(self.running):
            self.outcome = StageOutcome.EXECUTED
        elif line.startswith(self.restored) and self.outcome is StageOutcome.SKIPPED:
            self.outcome = StageOutcome.RESTORED
        if line.strip() not in dvc_internals.GIT_HINTS:
            self.tail.append(line)
            self.log(line)


def classify(status: int, output: str, *, is_gpu_shared: bool = False) -> Trouble:
    """Cause of a failed `dvc repro`, by its exit status and output.

    An error in a stage's code or input is final. So is a model too large for a GPU, unless other
    processes have a part of its memory (`is_gpu_shared`).
    """
    if dvc_internals.BUSY.search(output) or IN_USE.search(output):
        return Trouble.BUSY
    if dvc_internals.TORN.search(output):
        return Trouble.TORN
    if status in KILLS or KILLED.search(output) or NO_DEVICE.search(output):
        return Trouble.PREEMPTED
    if is_gpu_shared and OUT_OF_MEMORY.search(output):
        return Trouble.FULL
    return Trouble.FINAL


def find_error(lines: Iterable[str]) -> str:
    """The line of an output that best explains a failure.

    That is the last `SomeError: message` of a traceback, else the first `ERROR:` of DVC, else the
    last line.
    """
    lines = [line.strip() for line in lines if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b.*:", line)]
    dvc_errors = [line for line in lines if line.startswith("ERROR:")]
    if errors:
        return errors[-1]
    return dvc_errors[0] if dvc_errors else ["no output", *lines][-1]
