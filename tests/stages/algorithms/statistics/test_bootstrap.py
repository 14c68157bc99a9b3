import itertools

import numpy as np
import pytest
import synthetic_pools

from stages.algorithms.statistics.bootstrap import Intervals, mean_intervals


def interval(values: np.ndarray, *, seed: int = 0, num_resamples: int = 2000) -> Intervals:
    return mean_intervals(values, num_resamples=num_resamples, confidence=0.95, seed=seed)


def test_a_constant_column_has_an_interval_of_width_zero():
    assert [bound.tolist() for bound in interval(np.full((7, 1), 0.25))] == [[0.25]] * 3


def test_one_problem_has_an_interval_of_width_zero():
    assert [bound.tolist() for bound in interval(np.array([[0.5, 2.0]]))] == [[0.5, 2.0]] * 3


def test_the_bounds_are_the_quantiles_of_all_possible_resamples():
    # 4 problems have 4^4 equally likely resamples; with many draws the bounds are their quantiles.
    values = np.array([0.0, 1.0, 4.0, 10.0])
    means = [np.mean(resample) for resample in itertools.product(values, repeat=4)]
    found = interval(values[:, None], num_resamples=20_000)
    assert found.value.tolist() == [3.75]
    assert found.low[0] == pytest.approx(np.quantile(means, 0.025), abs=0.26)
    assert found.high[0] == pytest.approx(np.quantile(means, 0.975), abs=0.26)


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
    found = interval(np.stack([worse, better, better - worse], axis=1))
    assert found.low[1] < found.high[0]  # the two intervals overlap
    assert found.low[2] > 0.04  # the difference is resolved


def test_the_width_shrinks_with_the_square_root_of_the_number_of_problems():
    values = np.random.default_rng(0).normal(size=(6400, 1))
    few, many = interval(values[:400]), interval(values)
    ratio = (few.high - few.low) / (many.high - many.low)
    assert ratio[0] == pytest.approx(4.0, rel=0.1)


def test_95_of_100_intervals_of_a_mean_hold_the_truth():
    stream = np.random.default_rng(0)
    values = synthetic_pools.rates(stream, synthetic_pools.difficulties(stream, 200), 8)
    found = mean_intervals(values, num_resamples=1000, confidence=0.95, seed=0)
    assert 0.93 <= synthetic_pools.coverage(found.low, found.high, 0.5) <= 0.97


def test_95_of_100_intervals_of_a_paired_difference_hold_the_truth():
    values = synthetic_pools.differences(0, num_seeds=1, num_problems=200, seed_deviation=0.0)
    found = mean_intervals(values[0], num_resamples=1000, confidence=0.95, seed=0)
    assert 0.93 <= synthetic_pools.coverage(found.low, found.high, 0.0) <= 0.97
