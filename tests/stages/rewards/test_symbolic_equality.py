import logging
import os
import threading
import time

import pytest

from stages.rewards import symbolic_equality

HANGS = "9^{9^{9^9}}"


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short limit for a worker that is already running, so only the check is timed."""
    symbolic_equality.equal(r"\sqrt{4}", r"\sqrt 4")
    monkeypatch.setattr(symbolic_equality, "TIMEOUT_SECONDS", 1.0)


def test_equal_expressions_are_equal() -> None:
    assert symbolic_equality.equal(r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}")
    assert not symbolic_equality.equal(r"\sqrt{3}", r"\sqrt{2}")


def test_a_check_that_hangs_is_killed_logged_and_counted_and_the_next_one_works(
    limited: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    timeouts = symbolic_equality.counts.timeouts
    start = time.perf_counter()
    with caplog.at_level(logging.WARNING):
        assert not symbolic_equality.equal(HANGS, r"\sqrt{2}")
    assert time.perf_counter() - start < 20
    assert symbolic_equality.counts.timeouts == timeouts + 1
    assert "counted as unequal" in caplog.text
    monkeypatch.undo()
    assert symbolic_equality.equal(r"\sqrt{50}", r"5\sqrt{2}")


def test_a_worker_that_died_is_logged_counted_and_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    symbolic_equality.equal(r"\sqrt{4}", r"\sqrt 4")
    errors = symbolic_equality.counts.errors
    assert symbolic_equality._verifier.worker is not None
    os.kill(symbolic_equality._verifier.worker.pid, 9)
    results = [symbolic_equality.equal(rf"\sqrt{{{n}}}", rf"\sqrt {n}") for n in (5, 6)]
    assert results[1]
    assert symbolic_equality.counts.errors - errors == (0 if results[0] else 1)


def test_it_works_from_other_threads() -> None:
    verdicts: list[bool] = []
    threads = [
        threading.Thread(
            target=lambda n=n: verdicts.append(
                symbolic_equality.equal(rf"\sqrt{{{n * n * 2}}}", rf"{n}\sqrt{{2}}")
            )
        )
        for n in (2, 3, 4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [True] * 3
