import numpy as np
import pytest

from stages.algorithms.statistics.calibration import (
    equal_mass,
    equal_width,
    expected_calibration_error,
    preferred_side,
    reliability_bins,
)


def error(probabilities, outcomes, problems=None, *, num_bins=2, binning=equal_mass, seed=0):
    return expected_calibration_error(
        np.array(probabilities),
        np.array(outcomes, dtype=np.float64),
        np.arange(len(probabilities)) if problems is None else np.array(problems),
        num_bins=num_bins,
        binning=binning,
        num_resamples=500,
        confidence=0.95,
        seed=seed,
    )


def bins(probabilities, outcomes, num_bins, binning):
    return reliability_bins(
        np.array(probabilities),
        np.array(outcomes, dtype=np.float64),
        num_bins=num_bins,
        binning=binning,
    )


def test_two_bins_worked_by_hand():
    probabilities, outcomes = [0.1, 0.3, 0.6, 0.8], [0, 1, 1, 1]
    found = bins(probabilities, outcomes, 2, equal_mass)
    assert [(one.accuracy, one.count) for one in found] == [(0.5, 2), (1.0, 2)]
    assert [one.confidence for one in found] == pytest.approx([0.2, 0.7])
    # 1/2 |0.5 - 0.2| + 1/2 |1 - 0.7|
    assert error(probabilities, outcomes).value == pytest.approx(0.3)


def test_equal_width_bins_hold_their_lower_edge_and_the_last_one_holds_1():
    assert equal_width(np.array([0.0, 0.2499, 0.25, 0.5, 0.999, 1.0]), 4).tolist() == [
        0, 0, 1, 2, 3, 3,
    ]  # fmt: skip


def test_equal_mass_bins_keep_equal_predictions_together_in_any_order():
    values = np.array([0.5, 0.5, 0.5, 0.9, 0.1])
    found = equal_mass(values, 5)
    assert found.tolist() == [1, 1, 1, 4, 0]
    order = [3, 0, 4, 2, 1]
    assert equal_mass(values[order], 5).tolist() == found[order].tolist()


def test_an_empty_bin_is_absent_and_adds_nothing():
    found = bins([0.05, 0.95, 0.97], [0, 1, 1], 10, equal_width)
    assert [one.count for one in found] == [1, 2]
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
    for binning in (equal_mass, equal_width):
        once = error(confidence, outcome, num_bins=5 if binning is equal_mass else 10,
                     binning=binning)  # fmt: skip
        assert once.value == pytest.approx(error(*both, num_bins=10, binning=binning).value)


def test_a_problem_is_drawn_with_all_its_predictions():
    # One problem: every resample is the sample itself.
    found = error([0.2, 0.4, 0.9], [0, 1, 1], [0, 0, 0])
    assert found.low == found.high == pytest.approx(found.value)
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
