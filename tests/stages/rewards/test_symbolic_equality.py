import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stages.environments.time_limit import TimeLimitError, call_within
from stages.rewards import expression_size, symbolic_equality

HANGS = r"\int_0^1 e^{x^2} \sin x dx"


def test_equal_expressions_are_equal() -> None:
    assert symbolic_equality.are_equal(r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}")
    assert not symbolic_equality.are_equal(r"\sqrt{3}", r"\sqrt{2}")


def test_i_is_the_imaginary_unit() -> None:
    assert symbolic_equality.are_equal(r"\frac{1}{i}", "-i")
    assert symbolic_equality.are_equal(r"\frac{1+i}{2}", r"\frac{1}{1-i}")
    assert symbolic_equality.are_equal(r"e^{i\pi/3}", r"\frac{1}{2}+\frac{\sqrt{3}}{2}i")
    assert not symbolic_equality.are_equal(r"\frac{1}{i}", "i")
    assert not symbolic_equality.are_equal(r"e^{i\pi/3}", r"\frac{1}{2}-\frac{\sqrt{3}}{2}i")


def test_a_check_with_too_many_calls_is_logged_and_counted_and_the_next_one_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = symbolic_equality.counts["errors"]
    monkeypatch.setattr(symbolic_equality, "MAX_CALLS_WITHOUT_VALUE", 100_000)
    with caplog.at_level(logging.WARNING):
        assert not symbolic_equality.are_equal(HANGS, r"\sqrt{2}")
    assert symbolic_equality.counts["errors"] == errors + 1
    assert "not done after 100000 calls" in caplog.text
    monkeypatch.undo()
    worker = symbolic_equality._verifier.worker
    assert symbolic_equality.are_equal(r"\sqrt{50}", r"5\sqrt{2}")
    assert symbolic_equality._verifier.worker is worker


def test_a_loop_without_calls_is_ended_by_its_cpu_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(symbolic_equality, "CPU_SECONDS", 1)
    monkeypatch.setattr(expression_size, "is_small", lambda text: True)
    assert not symbolic_equality.are_equal("9^{9^{9^9}}", r"\sqrt{2}")
    assert "out of CPU time" in caplog.text


def test_the_number_of_calls_depends_on_the_expressions_alone() -> None:
    """In a worker exactly; between workers up to the order of sets by address."""
    pair = {"answer": r"\cos(\frac{x}{7})^2+x^5", "gold": r"1-\sin(\frac{x}{7})^2+x^5"}

    def count_calls() -> int:
        worker = symbolic_equality._verifier.running_worker()
        assert worker.stdin is not None
        request = {**pair, "calls": symbolic_equality.MAX_CALLS, "seconds": 20}
        worker.stdin.write(json.dumps(request).encode() + b"\n")
        worker.stdin.flush()
        reply = symbolic_equality._reply(worker, 100.0)
        assert reply["equal"] is True
        return int(str(reply["calls"]))

    first = count_calls()
    # what sympy would find in its caches
    assert symbolic_equality.are_equal(pair["answer"].replace("5", "3"), "x") is False
    assert count_calls() == first
    assert symbolic_equality._verifier.worker is not None
    symbolic_equality._stop(symbolic_equality._verifier.worker)
    assert count_calls() == pytest.approx(first, rel=0.01)


def test_a_worker_that_died_is_logged_counted_and_replaced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    symbolic_equality.are_equal(r"\sqrt{4}", r"\sqrt 4")
    errors = symbolic_equality.counts["errors"]
    assert symbolic_equality._verifier.worker is not None
    os.kill(symbolic_equality._verifier.worker.pid, 9)
    results = [symbolic_equality.are_equal(rf"\sqrt{{{n}}}", rf"\sqrt {n}") for n in (5, 6)]
    assert results[1]
    assert symbolic_equality.counts["errors"] - errors == (0 if results[0] else 1)


@pytest.mark.parametrize("is_running", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_check_that_its_caller_interrupted_answers_no_later_one(is_running: bool) -> None:
    verifier = symbolic_equality._Verifier()
    if is_running:
        assert verifier.ask(r"\frac{1}{2}", "0.5", 10**6)
    with pytest.raises(TimeLimitError):
        call_within(0.02, lambda: verifier.ask("(x+1)^{40}-(x+2)^{40}", "(x+3)^{40}", 10**6))
    assert verifier.ask(r"\frac{1}{2}", "0.5", 10**6)
    assert not verifier.ask(r"\frac{1}{2}", "0.7", 10**6)
    symbolic_equality._stop(verifier.running_worker())


def test_it_works_from_other_threads() -> None:
    verdicts: list[bool] = []
    threads = [
        threading.Thread(
            target=lambda n=n: verdicts.append(
                symbolic_equality.are_equal(rf"\sqrt{{{n * n * 2}}}", rf"{n}\sqrt{{2}}")
            )
        )
        for n in (2, 3, 4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [True] * 3


linux = pytest.mark.skipif(sys.platform != "linux", reason="no limit on memory elsewhere")


@linux
def test_more_memory_than_the_limit_is_an_error_in_the_worker_and_nothing_else() -> None:
    program = (
        "from stages.rewards import expression_size, symbolic_equality as worker\n"
        "worker.limit_memory()\n"
        "small = bytearray(worker.MEMORY_BYTES // 4)\n"
        "try:\n    large = bytearray(worker.MEMORY_BYTES)\n"
        "except MemoryError:\n    print('refused')\n"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "refused\n"


@linux
def test_the_worker_that_runs_has_the_limit() -> None:
    symbolic_equality.are_equal(r"\sqrt{4}", r"\sqrt 4")
    worker = symbolic_equality._verifier.worker
    assert worker is not None
    limits = Path(f"/proc/{worker.pid}/limits").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in limits if line.startswith("Max address space")]
    assert line.split()[3:5] == [str(symbolic_equality.MEMORY_BYTES)] * 2


@pytest.mark.parametrize("answer", [r"\sqrt{" + "9" * 10_000 + "}", "9" * 10_000, "(" * 9_999])
def test_ten_kilobytes_of_digits_or_brackets_never_reach_the_worker(answer: str) -> None:
    worker = symbolic_equality._verifier.running_worker()
    before = symbolic_equality.counts.copy()
    symbolic_equality.are_equal.cache_clear()
    assert not symbolic_equality.are_equal(answer, r"\sqrt{3}")
    assert symbolic_equality.counts - before == {"checks": 1, "refused": 1}
    assert symbolic_equality._verifier.worker is worker
    assert worker.poll() is None
