import dataclasses

import pytest

from stages.records.problem_search import ProblemSearch
from stages.reports import search_summary

CONFIG = search_summary.SummaryConfig(num_bootstrap=200, confidence=0.95)
ROW = ProblemSearch(
    id="p", num_solutions=4, best=1.0, weighted=1.0, majority=0.0, any_right=True, depth=2,
    generated_tokens=100, dropped_tokens=30, read_tokens=50, read_tokens_once=20, scored_tokens=70,
    scored_tokens_once=40, flops=1000.0, flops_once=600.0,
)  # fmt: skip


def summarised(rows):
    return search_summary.summarise(rows, 3, 7, CONFIG, seed=0)


def test_means_and_totals_by_hand():
    other = dataclasses.replace(ROW, best=0.0, majority=1.0, generated_tokens=50, flops=500.0)
    found = summarised([ROW, ROW, ROW, other])
    assert found["num_problems"] == 4
    assert (found["policy_parameters"], found["process_parameters"]) == (3, 7)
    assert found["generated_tokens"] == 350
    assert found["per_problem"]["generated_tokens"] == 87.5
    assert found["per_problem"]["flops"] == 875.0
    accuracies = found["accuracies"]
    assert accuracies["best"]["value"] == 0.75
    assert accuracies["majority"]["value"] == 0.25
    assert accuracies["best_minus_majority"]["value"] == 0.5
    assert accuracies["best"]["low"] < 0.75 < accuracies["best"]["high"]


def test_a_rate_without_variation_has_wilsons_interval():
    accuracies = summarised([ROW] * 10)["accuracies"]
    # Wilson's 95 % interval of 10 of 10: 1 / (1 + 1.96^2 / 10) = 0.722
    assert accuracies["any_right"] == pytest.approx({"value": 1.0, "low": 0.722467, "high": 1.0})
    assert accuracies["majority"]["high"] == pytest.approx(1 - 0.722467, abs=1e-6)
    # a difference is no rate
    assert accuracies["best_minus_majority"] == {"value": 1.0, "low": 1.0, "high": 1.0}
