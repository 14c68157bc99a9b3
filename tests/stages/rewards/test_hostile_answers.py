"""A batch of different hostile answers is bounded work, and each verdict is the answer's own."""

from collections.abc import Callable

import psutil
import pytest

from stages.rewards import symbolic_equality
from stages.rewards.answer_checker import answers_match

GOLD = r"\frac{3\sqrt{5}}{7}"
KINDS: dict[str, Callable[[int], str]] = {
    "towers": lambda n: f"{n}^{{{n}^{{3}}}}",
    "towers too high": lambda n: f"9^{{9^{{{n}}}}}",
    "expanded powers": lambda n: f"(x+y+{n})^{{30}}",
    "nested fractions": lambda n: r"\frac{1}{\pi+" * 10 + str(n) + "}" * 10,
    "long products": lambda n: f"({n}+a)" + "".join(f"({x}+{n})" for x in "bckmnpqr"),
    "huge factorials": lambda n: f"{n + 60}!" + "+2^{999}" * n,
    "deep brackets": lambda n: "(" * 30 + rf"\sqrt{{{n}}}" + ")" * 30,
    "deep functions": lambda n: r"\sin(" * 9 + f"x+{n}" + ")" * 9,
    "sums of fractions": lambda n: "+".join(rf"\frac{{1}}{{x+{n + k}}}" for k in range(10)),
    "equations": lambda n: f"(x+y+{n})^{{30}}-{n}",
}
UNREAD: dict[str, Callable[[int], str]] = {
    "cosines of sums": lambda n: rf"\tan((x+y+{n})^{{9}})",
    "expanded powers of names": lambda n: f"(x_1+y+{n})^{{30}}",
}
"""Notation whose value is not computed."""
BATCH = 128


@pytest.fixture
def budgets(monkeypatch):
    """Calls that algebra may take, of each check that it is asked for."""
    calls_seen: list[int] = []
    monkeypatch.setattr(
        symbolic_equality._verifier,
        "ask",
        lambda _answer, _gold, calls: bool(calls_seen.append(calls)),
    )
    symbolic_equality.are_equal.cache_clear()
    yield calls_seen
    symbolic_equality.are_equal.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gold", [GOLD, "x^2+3x+1", r"(2,\frac{\pi}{3})"])
def test_of_hostile_answers_none_is_left_to_algebra(budgets, kind, gold):
    batch = [KINDS[kind](n) for n in range(2, 12)]
    assert not any(answers_match(answer, gold) for answer in batch)
    assert budgets == []


@pytest.mark.parametrize("kind", UNREAD)
def test_algebra_on_answers_without_a_value_has_half_the_budget_and_equal_ones_share_it(
    budgets, kind
):
    batch = [UNREAD[kind](n) for n in (2, 3, 2, 3, 2)]
    assert not any(answers_match(answer, GOLD) for answer in batch)
    assert budgets == [symbolic_equality.MAX_CALLS_WITHOUT_VALUE] * 2
    assert symbolic_equality.MAX_CALLS_WITHOUT_VALUE * 2 <= symbolic_equality.MAX_CALLS


def test_a_right_answer_in_hostile_notation_has_the_whole_budget(budgets):
    answers_match("(" * 30 + r"\frac{3\sqrt{5}}{7}" + ")" * 30, GOLD)
    assert budgets == [symbolic_equality.MAX_CALLS]


def test_a_batch_of_hostile_answers_takes_seconds():
    """Of CPU time, on any machine; algebra on all of them takes minutes."""
    batch = [KINDS[kind](n) for n in range(2, 2 + BATCH // len(KINDS)) for kind in KINDS]
    symbolic_equality.are_equal.cache_clear()
    worker = psutil.Process(symbolic_equality._verifier.running_worker().pid)
    processes = [psutil.Process(), worker]
    before = [process.cpu_times() for process in processes]
    assert not any(answers_match(answer, GOLD) for answer in batch)
    after = [process.cpu_times() for process in processes]
    # user, system, and of ended children both
    seconds = sum(sum(new[:4]) - sum(old[:4]) for old, new in zip(before, after, strict=True))
    assert seconds < 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("7x^2+16y^2=112", r"\frac{x^2}{16}+\frac{y^2}{7}=1"),
        ("x_1^2-x_2^2", "(x_1-x_2)(x_1+x_2)"),
        (r"3\log_2 5", r"\log_2 125"), ("a_n=2^{n}-1", "a_n=2*2^{n-1}-1"),
    ],
)  # fmt: skip
def test_half_the_budget_is_enough_for_right_answers_that_have_no_value(answer, gold):
    assert answers_match(answer, gold)
