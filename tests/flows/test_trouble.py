"""Which failures are worth another attempt, and the words that tell why."""

from collections import deque

import pytest

from flows.trouble import Trouble, classify, last_words


@pytest.mark.parametrize(
    ("status", "output", "trouble"),
    [
        (255, "ERROR: '/x' is busy, it is being blocked by:", Trouble.BUSY),
        (255, "ERROR: failed to run: python -m stages.a, exited with -9", Trouble.PREEMPTED),
        (255, "ERROR: failed to run: python -m stages.a, exited with 143", Trouble.PREEMPTED),
        (-15, "", Trouble.PREEMPTED),
        (
            255,
            "ERROR: Unable to read RWLock-file '.dvc/tmp/rwlock'. JSON structure is corrupted",
            Trouble.TORN,
        ),
        (255, "ERROR: failed to run: python -m stages.a, exited with 1", Trouble.FINAL),
        (255, "ERROR: failed to run: python -m stages.a, exited with -11", Trouble.FINAL),
        (255, "RuntimeError: CUDA out of memory", Trouble.FINAL),
        (255, "all CUDA-capable devices are busy or unavailable", Trouble.PREEMPTED),
    ],
)
def test_only_what_another_attempt_can_cure_is_tried_again(
    status: int, output: str, trouble: Trouble
) -> None:
    assert classify(status, output) is trouble


def test_the_reason_of_a_failure_is_the_line_that_says_most() -> None:
    assert last_words(deque(["x", "ValueError: bad", "ERROR: failed to run"])) == "ValueError: bad"
    assert last_words(deque(["x", "ERROR: a is missing", "see docs"])) == "ERROR: a is missing"
    assert last_words(deque(["x", "y", ""])) == "y"
    assert last_words(deque()) == "no output"
