import dataclasses

import pytest

from stages.records.problem_result import ProblemResult
from stages.reports import policy_comparison

OPTIONS = {"n": "2", "num_resamples": 400, "confidence": 0.95, "seed": 0}


def result(name: str, accuracy: float) -> ProblemResult:
    tables = {table: {"1": accuracy, "2": accuracy} for table in ("pass_at", "majority_at")}
    return ProblemResult(
        id=name,
        num_samples=2,
        num_correct=round(2 * accuracy),
        greedy_correct=accuracy == 1.0,
        mean_accuracy=accuracy,
        best_of={"1": accuracy, "2": accuracy / 2},
        readable_rate=1.0,
        format_rate=1.0,
        truncation_rate=0.0,
        mean_tokens=10.0 + accuracy,
        **tables,
    )


def test_a_policy_that_gains_the_same_on_every_problem_gains_it_surely():
    sft = [result(f"p{i}", 0.5 * (i % 2)) for i in range(10)]
    better = [result(f"p{i}", 0.5 * (i % 2) + 0.5) for i in range(10)]
    found = policy_comparison.differences(better, sft, **OPTIONS)
    assert found["mean_accuracy"] == {"difference": 0.5, "low": 0.5, "high": 0.5}
    assert found["best_of"] == {"difference": 0.25, "low": 0.25, "high": 0.25}
    assert found["mean_tokens"] == {"difference": 0.5, "low": 0.5, "high": 0.5}
    greedy = found["greedy_accuracy"]
    assert greedy["difference"] == 0.5
    assert 0.0 < greedy["low"] < 0.5 < greedy["high"] < 1.0


def test_a_policy_against_itself_differs_by_nothing():
    rows = [result(f"p{i}", 0.5 * (i % 3)) for i in range(9)]
    found = policy_comparison.differences(rows, rows, **OPTIONS)
    assert all(set(interval.values()) == {0.0} for interval in found.values())


def test_results_on_other_problems_are_refused():
    rows = [result(f"p{i}", 0.5) for i in range(3)]
    for other in (rows[:2], [dataclasses.replace(row, id="x") for row in rows]):
        with pytest.raises(ValueError, match=r"same problems.*rerun `dvc repro`"):
            policy_comparison.differences(rows, other, **OPTIONS)


def test_an_entry_has_plain_numbers_and_keeps_its_curves():
    evaluation = {
        "num_problems": 3,
        "mean_accuracy": {"value": 0.5, "low": 0.4, "high": 0.6},
        "pass_at": {"2": {"value": 0.7, "low": 0.6, "high": 0.8}},
    }
    gain = {"difference": 0.1, "low": 0.05, "high": 0.15}
    entry = policy_comparison.entry(evaluation, {"mean_accuracy": gain, "best_of": gain})
    assert entry == {
        "mean_accuracy": 0.5,
        "mean_accuracy_low": 0.4,
        "mean_accuracy_high": 0.6,
        "pass_at": {"2": {"value": 0.7, "low": 0.6, "high": 0.8}},
        "versus_baseline": gain,
        "versus_baseline_best_of": gain,
    }
