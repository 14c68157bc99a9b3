import numpy as np
import pytest

from stages.algorithms.statistics.bootstrap import mean_intervals
from stages.algorithms.statistics.ratio_bootstrap import ratio_intervals

SETTINGS = {"num_resamples": 500, "confidence": 0.95, "seed": 3}


def test_the_value_is_the_ratio_of_the_sums_not_the_mean_of_the_ratios():
    found = ratio_intervals(np.array([[1.0], [3.0]]), np.array([[1.0], [7.0]]), **SETTINGS)
    assert found.value[0] == 0.5
    # the resamples: 1/1, 4/8 or 6/14
    assert found.low[0] == pytest.approx(6 / 14)
    assert found.high[0] == 1.0


def test_with_equal_denominators_it_is_the_interval_of_the_mean():
    values = np.random.default_rng(0).random((40, 3))
    found = ratio_intervals(values, np.ones((40, 3)), **SETTINGS)
    for ours, expected in zip(found, mean_intervals(values, **SETTINGS), strict=True):
        np.testing.assert_allclose(ours, expected)


def test_with_nothing_to_count_it_is_no_number():
    found = ratio_intervals(np.zeros((3, 2)), np.array([[0.0, 1.0]] * 3), **SETTINGS)
    assert [np.isnan(part[0]) for part in found] == [True] * 3
    assert [part[1] for part in found] == [0.0] * 3


def test_resamples_with_nothing_to_count_say_nothing():
    found = ratio_intervals(np.array([[1.0], [0.0]]), np.array([[1.0], [0.0]]), **SETTINGS)
    assert [part[0] for part in found] == [1.0, 1.0, 1.0]
