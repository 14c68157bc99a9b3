import math

import numpy as np
import pytest

from stages.records.preferences import Outcome
from stages.reports import outcome_model_quality
from stages.reports.problem_interval import QualityConfig

CONFIG = QualityConfig(
    num_bins=2,
    binning="equal_mass",
    length_tolerance=1,
    length_edges=[0],
    num_bootstrap=200,
    confidence=0.95,
)


def rows(**problems):
    return [
        Outcome(id=name, prompt_ids=[2], completion_ids=[3, 1], right=right == "+", weight=1.0)
        for name, verdicts in problems.items()
        for right in verdicts
    ]


def measure(outcomes, scores):
    return outcome_model_quality.measure(outcomes, np.array(scores, dtype=float), CONFIG, seed=0)


def test_areas_are_of_problems_with_both_and_are_averaged_over_these():
    found = measure(rows(a="+-", b="+--", c="++"), [1, 0, 1, 2, 0, -9, 9])
    assert found["auc"]["value"] == 0.75  # a: 1; b: 1/2; c has none
    assert (found["problems"], found["problems_with_both"], found["completions"]) == (3, 2, 7)
    assert found["right_share"]["value"] == pytest.approx((1 / 2 + 1 / 3 + 1) / 3, abs=1e-6)


def test_accuracy_and_likelihood_worked_by_hand():
    score = math.log(3.0)
    found = measure(rows(a="+-"), [score, score])
    assert found["accuracy"]["value"] == 0.5
    expected = (math.log(4 / 3) + math.log(4)) / 2
    assert found["negative_log_likelihood"]["value"] == pytest.approx(expected, abs=1e-6)
    assert found["expected_calibration_error"]["value"] == pytest.approx(0.25, abs=1e-6)
    assert measure(rows(a="+"), [0.0])["accuracy"]["value"] == 0.5


def test_a_sure_verdict_is_finite_and_telling_everything_apart_is_not_certainty():
    found = measure(rows(a="+-", b="-+"), [1e5, -1e5, -1e5, 1e5])
    assert found["negative_log_likelihood"]["value"] == 0.0
    assert found["accuracy"]["value"] == found["auc"]["value"] == 1.0
    assert found["auc"]["low"] < 1.0


def test_no_problem_with_both_has_no_area():
    found = measure(rows(a="++", b="--"), [1, 1, -1, -1])
    assert found["auc"] is None
    assert found["problems_with_both"] == 0
    assert found["one_verdict_accuracy"] == 0.5


def test_no_completions_and_no_numbers_are_errors():
    with pytest.raises(ValueError, match="found none"):
        measure([], [])
    with pytest.raises(ValueError, match="diverged"):
        measure(rows(a="+"), [math.inf])


def test_the_diagram_is_of_the_probability_that_the_answer_is_right():
    outcomes = rows(a="+-", b="+-")
    bins = outcome_model_quality.reliability(outcomes, np.array([0, 0, 2.0, -2.0]), CONFIG)
    assert sum(one.count for one in bins) == 4
    total = sum(one.confidence * one.count for one in bins)
    assert total == pytest.approx(2.0)
