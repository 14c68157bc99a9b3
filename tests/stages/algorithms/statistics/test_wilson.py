import numpy as np
import pytest

from stages.algorithms.statistics import wilson


def test_no_success_in_ten_trials():
    low, high = wilson.interval(0, 10, confidence=0.95)
    assert low == 0.0
    assert high == pytest.approx(3.841459 / 13.841459, abs=1e-6)


def test_half_of_a_hundred_is_the_known_interval():
    assert wilson.interval(50, 100, confidence=0.95) == pytest.approx((0.4038, 0.5962), abs=1e-4)


def test_successes_and_failures_mirror_each_other():
    low, high = wilson.interval(3, 20, confidence=0.9)
    assert wilson.interval(17, 20, confidence=0.9) == pytest.approx((1 - high, 1 - low), abs=1e-15)


def test_its_coverage_is_nominal_on_average():
    rates = np.random.default_rng(0).uniform(0.05, 0.95, 1000)
    successes = np.random.default_rng(1).binomial(100, rates)
    bounds = [wilson.interval(int(count), 100, confidence=0.95) for count in successes]
    covered = [low <= rate <= high for rate, (low, high) in zip(rates, bounds, strict=True)]
    assert 0.93 <= np.mean(covered) <= 0.97
