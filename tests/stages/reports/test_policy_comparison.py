import dataclasses

import pytest

from stages.records.results import ProblemResult
from stages.reports import policy_comparison

OPTIONS = {"num_resamples": 400, "confidence": 0.95, "seed": 0}


def result(name: str, accuracy: float) -> ProblemResult:
    right = accuracy == 1.0
    return ProblemResult(
        id=name,
        num_samples=2,
        num_correct=round(2 * accuracy),
        greedy_correct=right,
        greedy_strict=right,
        greedy_lenient=right,
        mean_accuracy=accuracy,
        mean_strict=0.0,
        mean_lenient=1.0,
        accuracy_at={
            "majority": {"1": accuracy, "2": accuracy},
            "best_of/outcome": {"1": accuracy, "2": accuracy / 2},
        },
        readable_rate=1.0,
        format_rate=1.0,
        truncation_rate=0.0,
        mean_tokens=10.0 + accuracy,
    )


def versus(ours, baseline):
    columns = [policy_comparison.quantities(rows, "2") for rows in (ours, baseline)]
    return policy_comparison.versus_baseline(*columns, **OPTIONS)


def bounds(one):
    return tuple(one[key] for key in ("difference", "low", "high"))


def test_a_policy_that_gains_the_same_on_every_problem_gains_it_surely():
    sft = [result(f"p{i}", 0.5 * (i % 2)) for i in range(10)]
    better = [result(f"p{i}", 0.5 * (i % 2) + 0.5) for i in range(10)]
    found = versus(better, sft)
    assert bounds(found["mean_accuracy"]) == (0.5, 0.5, 0.5)
    assert bounds(found["best_of/outcome"]) == (0.25, 0.25, 0.25)
    assert bounds(found["mean_strict"]) == bounds(found["mean_lenient"]) == (0.0, 0.0, 0.0)
    greedy = found["greedy_accuracy"]
    assert greedy["difference"] == 0.5
    assert 0.0 < greedy["low"] < 0.5 < greedy["high"] < 1.0
    assert (greedy["only_this"], greedy["only_baseline"]) == (5, 0)
    assert greedy["p"] == 2 / 2**5


def test_a_policy_against_itself_differs_by_nothing():
    rows = [result(f"p{i}", 0.5 * (i % 3)) for i in range(9)]
    found = versus(rows, rows)
    assert all(bounds(one) == (0.0, 0.0, 0.0) for one in found.values())
    assert [found[name]["p"] for name in policy_comparison.TESTED] == [1.0, 1.0, 1.0]


def test_what_a_policy_lacks_is_not_compared():
    rows = [result(f"p{i}", 0.5 * (i % 3)) for i in range(9)]
    bare = [
        dataclasses.replace(row, accuracy_at={"majority": row.accuracy_at["majority"]})
        for row in rows
    ]
    assert "best_of/outcome" not in versus(rows, bare)


def test_results_on_other_problems_are_refused():
    rows = [result(f"p{i}", 0.5) for i in range(3)]
    for other in (rows[:2], [dataclasses.replace(row, id="x") for row in rows]):
        with pytest.raises(ValueError, match=r"same problems.*rerun `dvc repro`"):
            policy_comparison.check_same_problems(rows, other)


def test_p_values_are_adjusted_over_all_comparisons_given():
    table = [{"p": 0.01}, {"p": 0.04}, {"p": 0.03}]
    policy_comparison.adjust(table)
    assert [one["p_holm"] for one in table] == pytest.approx([0.03, 0.06, 0.06])


def test_an_entry_has_plain_numbers_and_keeps_its_tables():
    evaluation = {
        "num_problems": 3,
        "mean_accuracy": {"value": 0.5, "low": 0.4, "high": 0.6},
        "accuracy_at": {"pass": {"2": {"value": 0.7, "low": 0.6, "high": 0.8}}},
    }
    assert policy_comparison.entry(evaluation) == {
        "mean_accuracy": 0.5,
        "mean_accuracy_low": 0.4,
        "mean_accuracy_high": 0.6,
        "accuracy_at": {"pass": {"2": {"value": 0.7, "low": 0.6, "high": 0.8}}},
    }
