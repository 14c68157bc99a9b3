"""Equality of mathematical expressions by math-verify, in a process with a hard time limit.

math-verify times itself with signals, which fails off the main thread, and can hang without them.
So it runs in one persistent worker process: waited for with a wall-clock limit, killed when it is
late, started again when next needed. A check that is late or fails counts as unequal, is logged,
and is counted in `counts`: it is never silent.

The worker is this file run as a program, so it imports nothing of the project: one JSON request a
line in, one answer a line out. Its memory is limited. If its parent dies, the kernel's alarm ends
it when it is busy, and the end of its input when it is idle.
"""

import json
import logging
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache, partial

TIMEOUT_SECONDS = 5.0
START_SECONDS = 120.0
MEMORY_BYTES = 2 * 1024**3
DIGITS = 70
"""To which values are compared where algebra decides nothing: more than an answer may have."""
logger = logging.getLogger(__name__)


counts: Counter[str] = Counter()
"""`checks` of this process since it started; of these `timeouts` and `errors`."""


class _Verifier:
    """The worker process, started when first needed; one check at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worker: subprocess.Popen[bytes] | None = None

    def ask(self, answer: str, gold: str) -> bool:
        worker, kind = self.running_worker(), "errors"
        assert worker.stdin is not None
        request = {"answer": answer, "gold": gold, "seconds": TIMEOUT_SECONDS + 5}
        try:
            worker.stdin.write(json.dumps(request).encode() + b"\n")
            worker.stdin.flush()
            reply = _reply(worker, TIMEOUT_SECONDS)
        except (BrokenPipeError, EOFError):
            reply = {"error": "the worker process died (out of memory?)"}
            _stop(worker)
        except TimeoutError as error:
            kind, reply = "timeouts", {"error": str(error)}
            _stop(worker)
        if "error" in reply:
            counts[kind] += 1
            logger.warning(
                "math-verify failed, counted as unequal (%d %s in %d checks so far): %.80r "
                "against %.80r: %s", counts[kind], kind, counts["checks"], answer, gold,
                reply["error"],
            )  # fmt: skip
        return bool(reply.get("equal"))

    def running_worker(self) -> subprocess.Popen[bytes]:
        if self.worker is not None and self.worker.poll() is None:
            return self.worker
        # With -P nothing of the folder that the file lies in may shadow a library.
        command = [sys.executable, "-P", __file__]
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


_verifier = _Verifier()


@lru_cache(maxsize=65536)
def are_equal(answer: str, gold: str) -> bool:
    """Whether math-verify takes both expressions for the same; from any thread."""
    with _verifier.lock:
        counts["checks"] += 1
        return _verifier.ask(answer, gold)


def _reply(worker: subprocess.Popen[bytes], seconds: float) -> dict[str, object]:
    """The worker's next line, which comes whole (`_say`)."""
    assert worker.stdout is not None
    if not select.select([worker.stdout], [], [], seconds)[0]:
        raise TimeoutError(f"no answer in {seconds:.0f} s")
    line = os.read(worker.stdout.fileno(), 65536)
    if not line:
        raise EOFError("the worker closed its output")
    return json.loads(line)


def _stop(worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()
    for stream in (worker.stdin, worker.stdout):
        # A request that the dead worker never read breaks the pipe.
        with suppress(BrokenPipeError):
            stream.close()  # pyright: ignore[reportOptionalMemberAccess]


def work() -> None:
    """Answer requests until the input ends."""
    limit_memory()
    from math_verify import parse, verify  # slow, so before the first time limit

    parse_answer = partial(parse, parsing_timeout=0, raise_on_error=True)
    same = partial(verify, numeric_precision=DIGITS, timeout_seconds=None, raise_on_error=True)
    # It warns at every check that its own timeouts are off.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    _say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        # The default action of SIGALRM needs no Python code to run: it works in a C loop, too.
        signal.setitimer(signal.ITIMER_REAL, request["seconds"])
        try:
            gold, answer = (
                parse_answer(f"${decimals_as_fractions(request[side])}$")
                for side in ("gold", "answer")
            )
            reply = {"equal": bool(same(gold, answer))}
        except Exception as error:  # noqa: BLE001  (goes to the parent, which logs and counts it)
            reply = {"error": f"{type(error).__name__}: {error}"[:300]}
        signal.setitimer(signal.ITIMER_REAL, 0)
        _say(reply)


_DECIMAL = re.compile(r"(\d{1,3}(?:,\d{3})+|\d*)\.(\d+)", re.ASCII)


def decimals_as_fractions(text: str) -> str:
    """Decimals as fractions: math-verify would round them, and 3.1415927 be pi."""

    def fraction(match: re.Match[str]) -> str:
        digits = (match[1] + match[2]).replace(",", "")
        return rf"(\frac{{{int(digits)}}}{{{10 ** len(match[2])}}})"

    return _DECIMAL.sub(fraction, text)


def limit_memory() -> None:
    """Make an allocation above `MEMORY_BYTES` a MemoryError, where the kernel does: on Linux."""
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _say(reply: Mapping[str, object]) -> None:
    # At once, and shorter than a pipe's buffer: it is never read in pieces.
    os.write(sys.stdout.fileno(), json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    work()
