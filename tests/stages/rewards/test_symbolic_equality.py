"""The worker of math-verify: verdicts, limits, and what never reaches it.

Verdicts by the table answers.yaml are in test_answer_checker.py.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from stages.environments.time_limit import TimeLimitError, call_within
from stages.rewards import expression_bounds, symbolic_equality
from stages.rewards.answer_checker import answers_match
from stages.rewards.symbolic_equality import MAX_CALLS, MAX_CALLS_WITHOUT_VALUE, are_equal

ANSWERS = YAML(typ="safe").load(Path(__file__).with_name("answers.yaml").read_text("utf-8"))
GOLD = r"\frac{3\sqrt{5}}{7}"


@pytest.fixture(autouse=True)
def empty_cache():
    are_equal.cache_clear()
    yield
    are_equal.cache_clear()


def worker() -> "subprocess.Popen[bytes]":
    return symbolic_equality._verifier.running_worker()


# --- how much algebra may do


@pytest.fixture
def budgets(monkeypatch):
    """Calls that algebra may take, of each check that it is asked for."""
    calls_seen: list[int] = []

    def ask(_answer: str, _gold: str, calls: int) -> bool:
        calls_seen.append(calls)
        return False

    monkeypatch.setattr(symbolic_equality._verifier, "ask", ask)
    return calls_seen


@pytest.mark.parametrize("gold", [GOLD, "x^2+3x+1", r"(2,\frac{\pi}{3})"])
def test_of_hostile_answers_none_is_left_to_algebra(budgets, gold):
    batch = [text.replace("<n>", f"{n}") for text in ANSWERS["hostile"] for n in range(2, 12)]
    assert [answer for answer in batch if answers_match(answer, gold)] == []
    assert budgets == []


def test_answers_without_a_value_have_half_the_budget_and_equal_ones_share_it(budgets):
    batch = [text.replace("<n>", n) for text in ANSWERS["not_computed"] for n in "23232"]
    assert [answer for answer in batch if answers_match(answer, GOLD)] == []
    assert budgets == [MAX_CALLS_WITHOUT_VALUE] * 4
    assert MAX_CALLS_WITHOUT_VALUE * 2 <= MAX_CALLS
    answers_match("(" * 30 + GOLD + ")" * 30, GOLD)  # the value of the gold one
    assert budgets[4:] == [MAX_CALLS]


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "gold"), ANSWERS["without_value"])
def test_half_the_budget_is_enough_for_right_answers_that_have_no_value(answer, gold):
    assert answers_match(answer, gold)


# --- limits of the process


HANGS, TOWER = r"\int_0^1 e^{x^2} \sin x dx", "9^{9^{9^9}}"


@pytest.mark.parametrize(
    ("limit", "value", "answer", "words"),
    [
        ("MAX_CALLS_WITHOUT_VALUE", 100_000, HANGS, "100000 calls"),
        ("CPU_SECONDS", 1, TOWER, "-9, out of time"),
    ],
)
def test_a_check_beyond_a_limit_is_counted_and_logged_and_the_next_one_works(
    limit, value, answer, words, monkeypatch, caplog
):
    process, errors = worker(), symbolic_equality.counts["errors"]
    monkeypatch.setattr(symbolic_equality, limit, value)
    monkeypatch.setattr(expression_bounds, "read_bounds", lambda _: expression_bounds.Bounds(None))
    assert not are_equal(answer, r"\sqrt{2}")
    assert symbolic_equality.counts["errors"] == errors + 1
    assert words in caplog.text
    assert are_equal(r"\sqrt{50}", r"5\sqrt{2}")
    assert worker() is process


def test_the_number_of_calls_depends_on_the_expressions_alone():
    """In a worker exactly; between workers up to the order of sets by address."""
    pair = {"answer": r"\cos(\frac{x}{7})^2+x^5", "gold": r"1-\sin(\frac{x}{7})^2+x^5"}

    def count_calls() -> int:
        process = worker()
        assert process.stdin is not None
        request = {**pair, "calls": MAX_CALLS, "cpu_seconds": 20}
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        reply = symbolic_equality._reply(process)
        assert reply["equal"] is True
        return int(str(reply["calls"]))

    first = count_calls()
    # what sympy would find in its caches
    assert are_equal(pair["answer"].replace("5", "3"), "x") is False
    assert count_calls() == first
    symbolic_equality._stop(worker())
    assert count_calls() == pytest.approx(first, rel=0.01)


def test_a_worker_that_died_is_counted_and_replaced(caplog):
    process, errors = worker(), symbolic_equality.counts["errors"]
    os.kill(process.pid, 9)
    results = [are_equal(rf"\sqrt{{{n}}}", rf"\sqrt {n}") for n in (5, 6)]
    assert results[1]
    assert symbolic_equality.counts["errors"] - errors == (0 if results[0] else 1)
    assert worker() is not process


def test_a_check_that_its_caller_interrupted_answers_no_later_one():
    verifier = symbolic_equality._Verifier()
    try:
        assert verifier.ask(r"\frac{1}{2}", "0.5", 10**6)
        with pytest.raises(TimeLimitError):
            call_within(0.02, lambda: verifier.ask("(x+1)^{40}-(x+2)^{40}", "(x+3)^{40}", 10**6))
        assert verifier.ask(r"\frac{1}{2}", "0.5", 10**6)
        assert not verifier.ask(r"\frac{1}{2}", "0.7", 10**6)
    finally:
        symbolic_equality._stop(verifier.running_worker())


def test_checks_of_several_threads_have_each_their_own_verdict():
    def check(n: int) -> bool:
        return are_equal(rf"\sqrt{{{n * n * 2}}}", rf"{n // 2 * 2}\sqrt{{2}}")

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(check, range(2, 8))) == [n % 2 == 0 for n in range(2, 8)]


@pytest.mark.skipif(sys.platform != "linux", reason="no limit on memory elsewhere")
def test_the_worker_has_its_limit_of_memory():
    limits = Path(f"/proc/{worker().pid}/limits").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in limits if line.startswith("Max address space")]
    assert line.split()[3:5] == [str(symbolic_equality.MEMORY_BYTES)] * 2
