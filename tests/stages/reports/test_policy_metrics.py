import dataclasses

import pytest

from stages.records.results import ProblemResult
from stages.reports import policy_metrics

RESULT = ProblemResult(
    id="p0",
    num_samples=4,
    num_correct=2,
    greedy_correct=True,
    greedy_strict=True,
    greedy_lenient=True,
    mean_accuracy=0.5,
    mean_strict=0.25,
    mean_lenient=0.75,
    accuracy_at={
        "pass": {"1": 0.5, "4": 1.0},
        "majority": {"1": 0.5, "4": 0.8},
        "best_of/outcome": {"1": 0.5, "4": 0.9},
    },
    readable_rate=1.0,
    format_rate=0.75,
    truncation_rate=0.0,
    mean_tokens=30.0,
)


def summarise(results):
    return policy_metrics.summarise(results, num_resamples=500, confidence=0.95, seed=0)


def test_equal_problems_give_their_values_and_differences():
    metrics = summarise([dataclasses.replace(RESULT, id=f"p{i}") for i in range(10)])
    assert (metrics["num_problems"], metrics["num_samples"]) == (10, 4)
    assert metrics["mean_accuracy"] == {"value": 0.5, "low": 0.5, "high": 0.5}
    assert metrics["mean_tokens"] == {"value": 30.0, "low": 30.0, "high": 30.0}
    assert (metrics["mean_strict"]["value"], metrics["mean_lenient"]["value"]) == (0.25, 0.75)
    minus_mean, minus_majority = metrics["minus_mean"], metrics["minus_majority"]
    assert minus_mean["best_of/outcome"]["4"]["value"] == pytest.approx(0.4)
    assert minus_mean["majority"]["4"]["value"] == pytest.approx(0.3)
    assert minus_majority["best_of/outcome"]["4"]["value"] == pytest.approx(0.1)
    assert minus_mean["best_of/outcome"]["1"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert "majority" not in minus_majority


def test_a_rate_that_is_the_same_on_every_problem_has_wilson_s_interval():
    # 0 of 10: up to z²/(10 + z²) = 0.2775, see the docstring of wilson.interval.
    metrics = summarise([dataclasses.replace(RESULT, id=f"p{i}") for i in range(10)])
    assert metrics["truncation_rate"] == {"value": 0.0, "low": 0.0, "high": 0.277533}
    assert metrics["readable_rate"] == {"value": 1.0, "low": 0.722467, "high": 1.0}
    assert metrics["accuracy_at"]["pass"]["4"] == {"value": 1.0, "low": 0.722467, "high": 1.0}


def test_greedy_accuracy_has_wilson_s_interval():
    rows = [dataclasses.replace(RESULT, id=f"p{i}", greedy_correct=i < 50) for i in range(100)]
    assert summarise(rows)["greedy_accuracy"] == pytest.approx(
        {"value": 0.5, "low": 0.4038, "high": 0.5962}, abs=1e-4
    )


def test_flattened_names_the_way_to_each_number():
    nested = {"num_problems": 2, "pass_at": {"4": {"value": 0.5, "low": 0.25}}}
    assert policy_metrics.flattened(nested) == {
        "num_problems": 2.0,
        "pass_at/4/value": 0.5,
        "pass_at/4/low": 0.25,
    }
