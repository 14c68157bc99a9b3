import itertools

import numpy as np
import pytest
import synthetic_pools

from stages.algorithms.statistics import intervals
from stages.algorithms.statistics.intervals import (
    IntervalColumns,
    bootstrap_means,
    bootstrap_ratios,
    problem_means,
    problem_numbers,
)


def interval(values: np.ndarray, *, seed: int = 0, num_resamples: int = 2000) -> IntervalColumns:
    return bootstrap_means(values, num_resamples=num_resamples, confidence=0.95, seed=seed)


def test_a_constant_column_has_an_interval_of_width_zero():
    assert [bound.tolist() for bound in interval(np.full((7, 1), 0.25))] == [[0.25]] * 3


def test_one_problem_has_an_interval_of_width_zero():
    assert [bound.tolist() for bound in interval(np.array([[0.5, 2.0]]))] == [[0.5, 2.0]] * 3


def test_the_bounds_are_the_quantiles_of_all_possible_resamples():
    # 4 problems have 4^4 equally likely resamples; with many draws the bounds are their quantiles.
    values = np.array([0.0, 1.0, 4.0, 10.0])
    means = [np.mean(resample) for resample in itertools.product(values, repeat=4)]
    result = interval(values[:, None], num_resamples=20_000)
    assert result.value.tolist() == [3.75]
    assert result.low[0] == pytest.approx(np.quantile(means, 0.025), abs=0.26)
    assert result.high[0] == pytest.approx(np.quantile(means, 0.975), abs=0.26)


def test_the_same_seed_gives_the_same_bounds_and_another_seed_others():
    values = np.random.default_rng(0).normal(size=(50, 1))
    assert interval(values, seed=1).low == interval(values, seed=1).low
    assert interval(values, seed=1).low != interval(values, seed=2).low


def test_a_column_has_the_same_interval_alone_and_among_others():
    values = np.random.default_rng(0).normal(size=(60, 3))
    together, alone = interval(values), interval(values[:, 1:2])
    assert together.low[1] == pytest.approx(alone.low[0], abs=1e-14)
    assert together.high[1] == pytest.approx(alone.high[0], abs=1e-14)


def test_pairing_cancels_the_difficulty_that_both_methods_share():
    stream = np.random.default_rng(0)
    difficulty = stream.random(300)
    worse = difficulty + stream.normal(0, 0.01, 300)
    better = difficulty + 0.05 + stream.normal(0, 0.01, 300)
    result = interval(np.stack([worse, better, better - worse], axis=1))
    assert result.low[1] < result.high[0]  # the two intervals overlap
    assert result.low[2] > 0.04  # the difference is resolved


def test_the_width_shrinks_with_the_square_root_of_the_number_of_problems():
    values = np.random.default_rng(0).normal(size=(6400, 1))
    few, many = interval(values[:400]), interval(values)
    ratio = (few.high - few.low) / (many.high - many.low)
    assert ratio[0] == pytest.approx(4.0, rel=0.1)


def test_95_of_100_intervals_of_a_mean_hold_the_truth():
    stream = np.random.default_rng(0)
    values = synthetic_pools.rates(stream, synthetic_pools.difficulties(stream, 200), 8)
    result = bootstrap_means(values, num_resamples=1000, confidence=0.95, seed=0)
    assert 0.93 <= synthetic_pools.coverage(result.low, result.high, 0.5) <= 0.97


def test_95_of_100_intervals_of_a_paired_difference_hold_the_truth():
    values = synthetic_pools.differences(0, num_seeds=1, num_problems=200, seed_deviation=0.0)
    result = bootstrap_means(values[0], num_resamples=1000, confidence=0.95, seed=0)
    assert 0.93 <= synthetic_pools.coverage(result.low, result.high, 0.0) <= 0.97


SETTINGS = {"num_resamples": 500, "confidence": 0.95, "seed": 3}


def test_the_value_is_the_ratio_of_the_sums_not_the_mean_of_the_ratios():
    result = bootstrap_ratios(np.array([[1.0], [3.0]]), np.array([[1.0], [7.0]]), **SETTINGS)
    assert result.value[0] == 0.5
    # the resamples: 1/1, 4/8 or 6/14
    assert result.low[0] == pytest.approx(6 / 14)
    assert result.high[0] == 1.0


def test_with_equal_denominators_it_is_the_interval_of_the_mean():
    values = np.random.default_rng(0).random((40, 3))
    actual = bootstrap_ratios(values, np.ones((40, 3)), **SETTINGS)
    for ours, expected in zip(actual, bootstrap_means(values, **SETTINGS), strict=True):
        np.testing.assert_allclose(ours, expected)


def test_with_nothing_to_count_it_is_no_number():
    result = bootstrap_ratios(np.zeros((3, 2)), np.array([[0.0, 1.0]] * 3), **SETTINGS)
    assert [np.isnan(part[0]) for part in result] == [True] * 3
    # None of 3 at 95 %: to 1.96^2 / (3 + 1.96^2) = 0.5615.
    assert [part[1] for part in result] == pytest.approx([0.0, 0.0, 0.5615], abs=1e-4)


def test_resamples_with_nothing_to_count_say_nothing():
    result = bootstrap_ratios(
        np.array([[1.0], [2.0], [0.0]]), np.array([[1.0], [4.0], [0.0]]), **SETTINGS
    )
    # the others: 1/1, 2/4 or sums of both
    assert [part[0] for part in result] == [0.6, 0.5, 1.0]


def test_a_ratio_of_1_is_as_sure_as_there_are_problems_to_count():
    result = bootstrap_ratios(np.array([[1.0], [0.0]]), np.array([[1.0], [0.0]]), **SETTINGS)
    # 1 of 1: from 1 / (1 + 1.96^2) = 0.2065
    assert [part[0] for part in result] == pytest.approx([1.0, 0.2065, 1.0], abs=1e-4)


def test_no_success_in_ten_trials():
    low, high = intervals.wilson_interval(0, 10, confidence=0.95)
    assert low == 0.0
    assert high == pytest.approx(3.841459 / 13.841459, abs=1e-6)


def test_half_of_a_hundred_is_the_known_interval():
    assert intervals.wilson_interval(50, 100, confidence=0.95) == pytest.approx(
        (0.4038, 0.5962), abs=1e-4
    )


def test_successes_and_failures_mirror_each_other():
    low, high = intervals.wilson_interval(3, 20, confidence=0.9)
    assert intervals.wilson_interval(17, 20, confidence=0.9) == pytest.approx(
        (1 - high, 1 - low), abs=1e-15
    )


def test_its_coverage_is_nominal_on_average():
    rates = np.random.default_rng(0).uniform(0.05, 0.95, 1000)
    successes = np.random.default_rng(1).binomial(100, rates)
    bounds = [intervals.wilson_interval(int(count), 100, confidence=0.95) for count in successes]
    covered = [low <= rate <= high for rate, (low, high) in zip(rates, bounds, strict=True)]
    assert 0.93 <= np.mean(covered) <= 0.97


def test_rows_of_a_problem_are_averaged_wherever_they_stand():
    numbers = problem_numbers(["b", "a", "b"])
    assert numbers.tolist() == [0, 1, 0]
    values = np.array([[1.0, 4.0], [0.0, 1.0], [0.0, 2.0]])
    assert problem_means(values, numbers).tolist() == [[0.5, 3.0], [0.0, 1.0]]


def test_a_problem_without_rows_is_absent():
    assert problem_means(np.array([[1.0], [3.0]]), np.array([5, 2])).tolist() == [[3.0], [1.0]]


def test_no_rows_are_no_problems():
    assert problem_means(np.zeros((0, 2)), np.zeros(0, dtype=np.int64)).shape == (0, 2)


def test_a_difference_that_is_the_same_on_all_problems_has_a_width():
    # A share of 1 - 0.025^(1/10) = 0.3085 of the problems may differ, and be 1, or -1.
    bounds = intervals.constant_difference_interval(0.0, 10, confidence=0.95)
    assert bounds == pytest.approx((-0.3085, 0.3085), abs=1e-4)
    bounds = intervals.constant_difference_interval(1.0, 10, confidence=0.95)
    assert bounds == pytest.approx((1.0 - 2 * 0.3085, 1.0), abs=1e-4)
    bounds = intervals.constant_difference_interval(-0.5, 10, confidence=0.95)
    assert bounds == pytest.approx((-0.5 - 0.5 * 0.3085, -0.5 + 1.5 * 0.3085), abs=1e-4)


def test_six_problems_without_exception_are_the_fewest_that_tell():
    """The sign test: 2 / 2^5 = 0.0625, 2 / 2^6 = 0.03125."""
    p_values = [intervals.constant_difference_p_value(-1.0, number) for number in (1, 5, 6)]
    assert p_values == [1.0, 0.0625, 0.03125]
    assert intervals.constant_difference_p_value(0.0, 100) == 1.0
    assert intervals.constant_difference_interval(1.0, 5, confidence=0.95)[0] < 0.0
    assert intervals.constant_difference_interval(1.0, 6, confidence=0.95)[0] > 0.0
