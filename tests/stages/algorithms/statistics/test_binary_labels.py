import math

import numpy as np
import pytest

from stages.algorithms.statistics.binary_labels import balanced_accuracy, negative_log_likelihood


def test_each_label_counts_for_half_however_rare():
    scores, is_right = np.array([0.9, 0.8, 0.2, 0.6]), np.array([True, True, True, False])
    # Two of three right ones and none of the wrong one.
    assert balanced_accuracy(scores, is_right, threshold=0.5) == pytest.approx((2 / 3 + 0) / 2)
    assert balanced_accuracy(scores, is_right, threshold=0.7) == pytest.approx((2 / 3 + 1) / 2)


def test_one_answer_to_everything_is_worth_one_half():
    is_right = np.array([True] * 9 + [False])
    assert balanced_accuracy(np.ones(10), is_right, threshold=0.5) == 0.5
    assert balanced_accuracy(np.zeros(10), is_right, threshold=0.5) == 0.5


def test_a_score_at_the_threshold_says_right():
    assert balanced_accuracy(np.array([0.5, 0.4]), np.array([True, False]), threshold=0.5) == 1.0


@pytest.mark.parametrize("is_right", [[True, True], [False, False]])
def test_of_one_label_alone_there_is_none(is_right):
    assert balanced_accuracy(np.array([0.1, 0.9]), np.array(is_right), threshold=0.5) is None


def test_likelihood_by_hand():
    found = negative_log_likelihood(np.array([0.8, 0.5]), np.array([1.0, 0.25]))
    assert found == pytest.approx((-math.log(0.8) + math.log(2)) / 2)


def test_certainty_that_was_wrong_costs_a_finite_amount():
    found = negative_log_likelihood(np.array([0.0]), np.array([1.0]))
    assert found == pytest.approx(-math.log(1e-7))
    assert negative_log_likelihood(np.array([1.0]), np.array([1.0])) < 1e-6
