"""Equality of mathematical expressions by math-verify, in processes with hard limits.

A verdict depends only on the two expressions, not on the clock or on other checks. Expressions that
would make numbers or sums too large are refused by their texts, and those with different values are
unequal (`expression_bounds`). If the values agree, algebra may take `MAX_CALLS` calls of Python
functions, a second or two, and `MAX_CALLS_WITHOUT_VALUE` if a value is unknown; above that the
expressions count as unequal. So wrong answers, however large their sums would be, take milliseconds
each, and at most half of this limit. (The number of calls differs by a thousandth between workers,
since objects have other addresses.) There is no budget of seconds, which differ between machines,
and none per batch, whose rest would depend on the other answers: such verdicts would not be
reproducible. Limits on CPU time and memory are only for unforeseen cases. A check that reaches a
limit is logged and counted in `counts`, never silent.

The worker is this file run as a program, so it imports nothing of the project: one JSON request per
line in, one answer per line out. It forks a process for each check, so that no check depends on
what another left in sympy's caches. If its parent dies, the end of its input ends the worker, and
its limits end the check. No limit is on wall time: a busy machine has the same verdicts.
"""

import gc
import json
import logging
import os
import re
import resource
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from types import FrameType
from typing import Any

MAX_CALLS = 1_500_000
"""Calls of Python functions in a check; two gold answers of MATH-500 take at most 1,200,000."""
MAX_CALLS_WITHOUT_VALUE = 750_000
"""Calls in a check of unknown value; `7x^2+16y^2=112` against an ellipse takes 550,000."""
MAX_TERMS_WITHOUT_VALUE = 100
"""Largest number of terms after expansion, if the value of an expression is unknown."""
CPU_SECONDS = 20
"""CPU time of a check, for a loop in C that counts as one call."""
MEMORY_BYTES = 2 * 1024**3
DIGITS = 70
"""Digits to which values are compared if algebra is undecided: more than an answer may have."""
logger = logging.getLogger(__name__)


counts: Counter[str] = Counter()
"""Number of `checks` since this process started, of those `refused` by text, and of `errors`."""


class _Verifier:
    """Client of the worker process, started when first needed; one check at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worker: subprocess.Popen[bytes] | None = None

    def ask(self, answer: str, gold: str, calls: int) -> bool:
        worker = self.running_worker()
        assert worker.stdin is not None
        limits = {"calls": calls, "cpu_seconds": CPU_SECONDS}
        request = {"answer": answer, "gold": gold} | limits
        try:
            worker.stdin.write(json.dumps(request).encode() + b"\n")
            worker.stdin.flush()
            reply = _reply(worker)
        except (BrokenPipeError, EOFError):
            reply = {"error": "the worker process died (out of memory?)"}
            _stop(worker)
        except BaseException:  # the caller's time limit: the next reply would be to this request
            _stop(worker)
            raise
        if "error" in reply:
            _count_failure("errors", answer, gold, str(reply["error"]))
        return bool(reply.get("equal"))

    def running_worker(self) -> subprocess.Popen[bytes]:
        if self.worker is not None and self.worker.poll() is None:
            return self.worker
        # With -P no module in this file's folder can shadow a library.
        command = [sys.executable, "-P", __file__]
        # The order of sets, and so the number of calls, depends on the hash seed.
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        self.worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        try:
            _reply(self.worker)
        except EOFError as error:
            _stop(self.worker)
            raise RuntimeError(
                f"the math-verify worker did not start. Check that `{sys.executable} -c 'import "
                f"math_verify'` works."
            ) from error
        except BaseException:
            _stop(self.worker)
            raise
        return self.worker


_verifier = _Verifier()


@lru_cache(maxsize=65536)
def are_equal(answer: str, gold: str) -> bool:
    """Whether math-verify finds both expressions equal; may be called from any thread."""
    # Not at the top: the worker imports nothing of the project.
    from stages.rewards import expression_bounds

    with _verifier.lock:
        counts["checks"] += 1
        differ = expression_bounds.differ(answer, gold)
        if differ:
            return False
        bounds = [expression_bounds.read_bounds(text) for text in (answer, gold)]
        max_terms = MAX_TERMS_WITHOUT_VALUE if differ is None else expression_bounds.MAX_TERMS
        if not all(each is not None and each.terms <= max_terms for each in bounds):
            _count_failure("refused", answer, gold, "its numbers or sums would be too large")
            return False
        return _verifier.ask(answer, gold, MAX_CALLS_WITHOUT_VALUE if differ is None else MAX_CALLS)


def _count_failure(kind: str, answer: str, gold: str, reason: str) -> None:
    counts[kind] += 1
    logger.warning(
        "math-verify was not asked or failed, counted as unequal (%d %s in %d checks so far): "
        "%.80r against %.80r: %s", counts[kind], kind, counts["checks"], answer, gold, reason,
    )  # fmt: skip


def _reply(worker: subprocess.Popen[bytes]) -> dict[str, object]:
    """Worker's next line, which comes whole (`_say`)."""
    assert worker.stdout is not None
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


WARM_UP = (
    (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"),
    (r"x^2+1", r"\sqrt[3]{5}-2\pi i"),
    (r"\sin(x)+\frac{x^9-1}{x-1}", r"e^{2x}+\log(x)"),
    (r"y=-\frac{1}{2}x+4", r"y=3x"),
    (r"(-1,2)\cup(5,\infty)", r"[0,\frac{\pi^2}{8}]"),
    (r"a_{n}=3^{n}-1", r"a_{n}=\frac{n(n+1)}{2}"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\binom{5}{2}"),
    (r"x \geq 3", r"x \leq 2"),
)
"""Pairs to check before any fork: they fill caches of the parser and sympy that most checks use."""


class TooManyCallsError(BaseException):
    """Error that handlers of `Exception` in sympy do not catch."""


def work() -> None:
    """Answer requests until the input ends.

    On Linux, an allocation above `MEMORY_BYTES` is a MemoryError.
    """
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    import sympy
    from latex2sympy2_extended import NormalizationConfig  # slow, so before the first limit
    from math_verify import parse, verify
    from math_verify.parser import LatexExtractionConfig

    # With `units` it would drop the h of `\pi r^2 h`, the 3t of `2x + 3t` and the ab of `2ab`.
    normalization = NormalizationConfig(malformed_operators=True, nits=True, units=False)
    extraction = [LatexExtractionConfig(normalization_config=normalization)]
    parse_answer = partial(
        parse, extraction_config=extraction, parsing_timeout=0, raise_on_error=True
    )
    same = partial(verify, numeric_precision=DIGITS, timeout_seconds=None, raise_on_error=True)
    # It warns at every check that its own timeouts are off.
    logging.getLogger("math_verify").setLevel(logging.ERROR)

    def parse_side(text: str) -> list[Any]:
        parsed = parse_answer(f"${decimals_as_fractions(text)}$")
        if not _IMAGINARY.search(text):
            return parsed
        # math-verify parses i as a variable
        return [
            value.subs(letters[0], sympy.I)
            if (letters := [v for v in getattr(value, "free_symbols", ()) if v.name == "i"])
            else value
            for value in parsed
        ]

    def check(request: dict[str, Any]) -> bool:
        return bool(same(parse_side(request["gold"]), parse_side(request["answer"])))

    for gold, answer in WARM_UP:
        check({"gold": gold, "answer": answer})
    gc.freeze()  # otherwise each fork would copy the pages that the collector touches
    _say({"ready": True})
    for line in sys.stdin:
        if (process := os.fork()) == 0:
            _reply_to(check, json.loads(line))
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if status:
            _say({"error": f"it ended with {status}, out of time or memory"})


def _reply_to(check: Callable[[dict[str, Any]], bool], request: dict[str, Any]) -> None:
    """Run a check in this process, and end the process."""
    seconds, calls = request["cpu_seconds"], 0

    def count(frame: FrameType, event: str, argument: object) -> None:  # noqa: ARG001
        nonlocal calls
        calls += 1
        if calls > request["calls"]:
            sys.settrace(None)
            raise TooManyCallsError(f"not done after {request['calls']} calls")

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    status = 1
    try:
        sys.settrace(count)
        is_equal = check(request)
        sys.settrace(None)
        _say({"equal": is_equal, "calls": calls})
        status = 0
    except (Exception, TooManyCallsError) as error:  # noqa: BLE001  (goes to the parent)
        sys.settrace(None)
        _say({"error": f"{type(error).__name__}: {error}"[:300]})
        status = 0
    finally:
        os._exit(status)


_IMAGINARY = re.compile(r"(?<![\\A-Za-z])i(?![A-Za-z])")


_DECIMAL = re.compile(r"(\d{1,3}(?:,\d{3})+|\d*)\.(\d+)", re.ASCII)


def decimals_as_fractions(text: str) -> str:
    """Text with decimals as fractions: math-verify would round them, and 3.1415927 would be pi."""

    def fraction(match: re.Match[str]) -> str:
        digits = (match[1] + match[2]).replace(",", "")
        return rf"(\frac{{{int(digits)}}}{{{10 ** len(match[2])}}})"

    return _DECIMAL.sub(fraction, text)


def _say(reply: Mapping[str, object]) -> None:
    # In one write, shorter than a pipe's buffer, so that it is never read in pieces.
    os.write(sys.stdout.fileno(), json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    work()
