import numpy as np
import pytest
from scipy import stats

from stages.algorithms.statistics.paired_test import p_value


def test_the_hand_worked_value():
    # mean 1/2, sd sqrt(1/3), z = 0.5 / (sqrt(1/3) / 2) = sqrt(3); 2 (1 - Phi(1.7320508)) = 0.083265
    assert p_value(np.array([1.0, 1.0, 0.0, 0.0])) == pytest.approx(0.0832645, abs=1e-6)


def test_it_is_the_t_test_for_many_problems_and_does_not_depend_on_the_sign():
    differences = np.random.default_rng(0).normal(0.02, 0.4, 5000)
    expected = stats.ttest_1samp(differences, 0.0).pvalue
    assert p_value(differences) == pytest.approx(expected, rel=0.01)
    assert p_value(-differences) == p_value(differences)


def test_differences_without_a_spread():
    assert p_value(np.zeros(5)) == 1.0
    assert p_value(np.full(5, 0.25)) == 0.0


def test_the_surest_difference_is_not_rounded_to_nothing():
    assert 0.0 < p_value(np.random.default_rng(0).normal(0.5, 1.0, 900)) < 1e-30


def test_under_the_hypothesis_one_in_twenty_is_below_five_per_cent():
    stream = np.random.default_rng(1)
    found = [p_value(stream.normal(0.0, 1.0, 200)) for _ in range(4000)]
    assert np.mean(np.array(found) < 0.05) == pytest.approx(0.05, abs=0.011)
