"""Why a `dvc repro` failed, and whether another attempt can cure it."""

import enum
import json
import re
from collections.abc import Iterable
from pathlib import Path

BUSY = re.compile(r"is busy, it is being blocked by|Unable to acquire lock")
TORN = re.compile(r"Unable to read RWLock-file '[^']*'. JSON structure is corrupted")
# Hang-up, kill (also the kernel's out-of-memory killer) and terminate; a shell adds 128.
KILLED = re.compile(r"failed to run: .*, exited with (-1|-9|-15|129|137|143)$", re.MULTILINE)
NO_DEVICE = re.compile(r"all CUDA-capable devices are busy or unavailable")
PREEMPTING_SIGNALS = frozenset({-1, -9, -15})


class Trouble(enum.Enum):
    """Whether trying again can help."""

    BUSY = "another DVC process was using the same paths"
    TORN = "DVC's list of paths in use was cut off when it was killed"
    PREEMPTED = "killed by a signal or by a lost device"
    FINAL = "failed"


def classify(status: int, output: str) -> Trouble:
    """Whether a `dvc repro` that ended with `status` is worth another attempt.

    An error in a stage's own code or input is final: it would only fail again.
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


def remove_torn_lock(root: Path) -> None:
    """Remove DVC's list of paths in use if it is not readable; DVC starts a new one.

    DVC writes it in place, so a power cut or SIGKILL can leave half of it, and then every
    `dvc` command fails until someone removes it. It names running processes only.
    """
    path = root / ".dvc" / "tmp" / "rwlock"
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        path.unlink(missing_ok=True)
