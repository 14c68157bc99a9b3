"""The process in which math-verify runs: one JSON request a line in, one answer a line out.

Started by `symbolic_equality`, by path; imports nothing of the project. Its memory is
limited, and the kernel kills it when one check outlives its alarm, so it cannot outlive
a parent that died while it was busy. An idle one ends at the end of its input.
"""

import json
import logging
import resource
import signal
import sys
from collections.abc import Mapping

MEMORY_BYTES = 2 * 1024**3


def compare(answer: str, gold: str) -> bool:
    """math-verify's verdict; its own timeouts are off, the process has a harder one."""
    from math_verify import parse, verify

    gold_parsed, answer_parsed = (
        parse(f"${text}$", parsing_timeout=0, raise_on_error=True) for text in (gold, answer)
    )
    return bool(verify(gold_parsed, answer_parsed, timeout_seconds=None, raise_on_error=True))


def main() -> None:
    """Answer requests until the input ends."""
    limit_memory()
    import math_verify  # noqa: F401  (the slow import happens before the first time limit)

    # It warns at every check that its own timeouts are off.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    _say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        # The default action of SIGALRM needs no Python code to run: it works in a C loop, too.
        signal.setitimer(signal.ITIMER_REAL, request["seconds"])
        try:
            reply = {"equal": compare(request["answer"], request["gold"])}
        except Exception as error:  # noqa: BLE001  (goes to the parent, which logs and counts it)
            reply = {"error": f"{type(error).__name__}: {error}"[:300]}
        signal.setitimer(signal.ITIMER_REAL, 0)
        _say(reply)


def limit_memory() -> None:
    """Let no allocation take this process above `MEMORY_BYTES`: it gets a MemoryError instead.

    By the size of its address space, which Linux enforces. macOS knows the limit and does not
    keep to it; there only the time limit holds.
    """
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _say(reply: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
