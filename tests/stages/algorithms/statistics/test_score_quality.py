import math

import numpy as np
import pytest

from stages.algorithms.statistics.score_quality import (
    auc,
    balanced_accuracy,
    equal_mass,
    expected_calibration_error,
    length_buckets,
    negative_log_likelihood,
    preferred_side,
    reliability_bins,
)


def of(scores, is_right):
    return auc(np.array(scores, dtype=np.float64), np.array(is_right, dtype=np.bool_))


def test_worked_by_hand():
    # right 1, 3; wrong 2, 0: (1>2) 0, (1>0) 1, (3>2) 1, (3>0) 1.
    assert of([1, 3, 2, 0], [1, 1, 0, 0]) == 0.75


def test_a_tie_counts_half():
    assert of([1, 1], [1, 0]) == 0.5
    # right 2; wrong 2, 1, 3: a half, 1, 0.
    assert of([2, 2, 1, 3], [1, 0, 0, 0]) == 0.5


@pytest.mark.parametrize("is_right", [[1, 1], [0, 0]])
def test_a_problem_with_one_class_has_none(is_right):
    assert of([0.0, 1.0], is_right) is None


def test_no_completion_at_all_has_none():
    assert of([], []) is None


def test_turned_scores_give_the_complement_and_a_monotone_transform_the_same():
    stream = np.random.default_rng(0)
    scores, is_right = stream.integers(0, 6, 40), stream.random(40) < 0.4
    result = of(scores, is_right)
    assert of(-scores, is_right) == pytest.approx(1 - result)
    assert of(np.exp(scores), is_right) == result


def test_it_equals_the_comparison_of_all_pairs():
    stream = np.random.default_rng(1)
    scores, is_right = stream.integers(0, 5, 30).astype(float), stream.random(30) < 0.5
    right, wrong = scores[is_right][:, None], scores[~is_right][None]
    assert of(scores, is_right) == pytest.approx(np.mean((right > wrong) + 0.5 * (right == wrong)))


def test_a_score_of_the_problem_alone_has_a_half_where_pooling_would_praise_it():
    easy, hard = [1, 1, 1, 0], [1, 0, 0, 0]
    assert of([1.0] * 4, easy) == of([0.0] * 4, hard) == 0.5
    assert of([1.0] * 4 + [0.0] * 4, easy + hard) == 0.75


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
    result = negative_log_likelihood(np.array([0.8, 0.5]), np.array([1.0, 0.25]))
    assert result == pytest.approx((-math.log(0.8) + math.log(2)) / 2)


def test_certainty_that_was_wrong_costs_a_finite_amount():
    result = negative_log_likelihood(np.array([0.0]), np.array([1.0]))
    assert result == pytest.approx(-math.log(1e-7))
    assert negative_log_likelihood(np.array([1.0]), np.array([1.0])) < 1e-6


def test_an_edge_begins_its_bucket_and_every_pair_is_in_one():
    differences = np.array([-9, -6, -5, -1, 0, 4, 5, 30])
    result = length_buckets(differences, [-5, 0, 5])
    assert {name: differences[inside].tolist() for name, inside in result.items()} == {
        "<= -6": [-9, -6],
        "-5 .. -1": [-5, -1],
        "0 .. 4": [0, 4],
        ">= 5": [5, 30],
    }


def test_an_empty_bucket_is_there_and_holds_no_pair():
    result = length_buckets(np.array([7]), [0, 5])
    assert {name: int(inside.sum()) for name, inside in result.items()} == {
        "<= -1": 0, "0 .. 4": 0, ">= 5": 1,
    }  # fmt: skip


@pytest.mark.parametrize("edges", [[], [2, 1], [1, 1]])
def test_edges_must_ascend(edges):
    with pytest.raises(AssertionError):
        length_buckets(np.array([0]), edges)


def error(probabilities, outcomes, problems=None, *, num_bins=2, seed=0):
    return expected_calibration_error(
        np.array(probabilities),
        np.array(outcomes, dtype=np.float64),
        np.arange(len(probabilities)) if problems is None else np.array(problems),
        num_bins=num_bins,
        num_resamples=500,
        confidence=0.95,
        seed=seed,
    )


def bins(probabilities, outcomes, num_bins):
    values = np.array(probabilities), np.array(outcomes, dtype=np.float64)
    return reliability_bins(*values, num_bins=num_bins)


def test_two_bins_worked_by_hand():
    probabilities, outcomes = [0.1, 0.3, 0.6, 0.8], [0, 1, 1, 1]
    result = bins(probabilities, outcomes, 2)
    assert [(item.accuracy, item.count) for item in result] == [(0.5, 2), (1.0, 2)]
    assert [item.confidence for item in result] == pytest.approx([0.2, 0.7])
    # 1/2 |0.5 - 0.2| + 1/2 |1 - 0.7|
    assert error(probabilities, outcomes).value == pytest.approx(0.3)


def test_equal_mass_bins_keep_equal_predictions_together_in_any_order():
    values = np.array([0.5, 0.5, 0.5, 0.9, 0.1])
    result = equal_mass(values, 5)
    assert result.tolist() == [1, 1, 1, 4, 0]
    order = [3, 0, 4, 2, 1]
    assert equal_mass(values[order], 5).tolist() == result[order].tolist()


def test_an_empty_bin_is_absent_and_adds_nothing():
    result = bins([0.05, 0.95, 0.95], [0, 1, 1], 10)
    assert [item.count for item in result] == [1, 2]
    assert error([0.5] * 4, [1, 0, 1, 0], num_bins=10).value == 0.0


def test_a_single_prediction_has_its_own_error_as_interval():
    assert error([0.75], [1]) == (0.25, 0.25, 0.25)


def test_soft_outcomes_count_as_they_are():
    assert error([0.8, 0.8], [0.8, 0.8]).value == pytest.approx(0.0)


def test_the_order_of_a_pair_carries_no_information():
    margins = np.array([2.0, -1.0, 0.5, -3.0, 0.0])
    labels = np.array([1.0, 1.0, 0.7, 0.2, 1.0])
    confidence, outcome = preferred_side(margins, labels)
    assert outcome.tolist() == pytest.approx([1.0, 0.0, 0.7, 0.8, 0.5])
    assert confidence[4] == 0.5
    swapped = preferred_side(-margins, 1 - labels)
    np.testing.assert_array_equal(confidence, swapped[0])
    np.testing.assert_allclose(outcome, swapped[1])


def test_the_error_of_preferred_sides_is_that_of_each_pair_in_both_directions():
    stream = np.random.default_rng(0)
    margins, labels = stream.normal(0, 2, 200), stream.random(200)
    confidence, outcome = preferred_side(margins, labels)
    forward = 1 / (1 + np.exp(-margins))
    both = np.concatenate([forward, 1 - forward]), np.concatenate([labels, 1 - labels])
    once = error(confidence, outcome, num_bins=5)
    assert once.value == pytest.approx(error(*both, num_bins=10).value)


def test_a_problem_is_drawn_with_all_its_predictions():
    # One problem: every resample is the sample itself.
    result = error([0.2, 0.4, 0.9], [0, 1, 1], [0, 0, 0])
    assert result.low == result.high == pytest.approx(result.value)
    wide = error([0.2, 0.4, 0.9] * 20, [0, 1, 1] * 20)
    assert wide.low < wide.high


def test_overconfidence_is_found_and_calibration_has_only_its_noise():
    stream = np.random.default_rng(1)
    truth = stream.random(4000)
    outcomes = stream.random(4000) < truth
    calibrated = error(truth, outcomes, num_bins=10)
    assert calibrated.value < 3 * np.sqrt(10 / 4000)
    sharpened = truth**3 / (truth**3 + (1 - truth) ** 3)
    assert error(sharpened, outcomes, num_bins=10).low > calibrated.high
