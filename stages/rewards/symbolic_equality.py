"""Equality of mathematical expressions by math-verify, in a process with a hard time limit.

math-verify times itself with signals, which fails off the main thread, and can hang
without them. So it runs in one persistent worker process: waited for with a wall-clock
limit, killed when it is late, started again when next needed. A check that is late or
fails counts as unequal, is logged, and is counted in `counts`: it is never silent.
"""

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import lru_cache

from stages.rewards import symbolic_worker

TIMEOUT_SECONDS = 5.0
START_SECONDS = 120.0
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """What happened to the checks of this process since it started."""

    checks: int = 0
    timeouts: int = 0
    errors: int = 0


class _Verifier:
    """The worker process, started when first needed; one check at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worker: subprocess.Popen[bytes] | None = None

    def ask(self, answer: str, gold: str) -> bool:
        worker = self.running_worker()
        assert worker.stdin is not None
        request = {"answer": answer, "gold": gold, "seconds": TIMEOUT_SECONDS + 5}
        try:
            worker.stdin.write(json.dumps(request).encode() + b"\n")
            worker.stdin.flush()
            reply = _reply(worker, TIMEOUT_SECONDS)
        except (BrokenPipeError, EOFError):
            reply = {"error": "the worker process died (out of memory?)"}
            _stop(worker)
        except TimeoutError:
            _stop(worker)
            counts.timeouts += 1
            logger.warning(
                "math-verify took more than %.0f s, counted as unequal (%d of %d checks so far): "
                "%.80r against %.80r",
                TIMEOUT_SECONDS, counts.timeouts, counts.checks, answer, gold,
            )  # fmt: skip
            return False
        if "error" in reply:
            counts.errors += 1
            logger.warning(
                "math-verify failed, counted as unequal (%d of %d checks so far): %.80r against "
                "%.80r: %s", counts.errors, counts.checks, answer, gold, reply["error"],
            )  # fmt: skip
            return False
        return bool(reply["equal"])

    def running_worker(self) -> subprocess.Popen[bytes]:
        if self.worker is not None and self.worker.poll() is None:
            return self.worker
        # By path and with -P: the worker needs nothing of the project, and nothing of the
        # folder it lies in may shadow a library.
        command = [sys.executable, "-P", symbolic_worker.__file__]
        self.worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            _reply(self.worker, START_SECONDS)
        except (EOFError, TimeoutError) as error:
            _stop(self.worker)
            raise RuntimeError(
                f"the math-verify worker did not start within {START_SECONDS:.0f} s ({error!r}). "
                f"Check that `{sys.executable} -c 'import math_verify'` works."
            ) from error
        return self.worker


counts = Counts()
_verifier = _Verifier()


@lru_cache(maxsize=65536)
def equal(answer: str, gold: str) -> bool:
    """Whether math-verify takes both expressions for the same; from any thread."""
    with _verifier.lock:
        counts.checks += 1
        return _verifier.ask(answer, gold)


def _reply(worker: subprocess.Popen[bytes], seconds: float) -> dict[str, object]:
    """The worker's next line, read without buffering so that `select` sees all of it."""
    assert worker.stdout is not None
    descriptor = worker.stdout.fileno()
    deadline = time.monotonic() + seconds
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            raise TimeoutError(f"no answer in {seconds} s")
        piece = os.read(descriptor, 65536)
        if not piece:
            raise EOFError("the worker closed its output")
        line += piece
    return json.loads(line)


def _stop(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            try:
                stream.close()
            except BrokenPipeError:  # a request that the dead worker never read
                continue
