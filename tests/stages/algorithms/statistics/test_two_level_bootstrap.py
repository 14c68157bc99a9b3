import itertools

import numpy as np
import pytest
import synthetic_pools

from stages.algorithms.statistics import bootstrap
from stages.algorithms.statistics.two_level_bootstrap import mean_intervals


def interval(values: np.ndarray, *, num_resamples: int = 2000, confidence: float = 0.95):
    return mean_intervals(values, num_resamples=num_resamples, confidence=confidence, seed=0)


def test_seeds_that_agree_leave_the_chance_of_the_problems():
    values = np.random.default_rng(0).normal(size=(1, 80, 1))
    both = interval(np.repeat(values, 4, axis=0), num_resamples=20_000)
    alone = bootstrap.mean_intervals(values[0], num_resamples=20_000, confidence=0.95, seed=1)
    assert both.value == pytest.approx(alone.value)
    assert both.low == pytest.approx(alone.low, abs=0.01)
    assert both.high == pytest.approx(alone.high, abs=0.01)


def test_problems_that_agree_leave_the_chance_of_the_seeds():
    values = np.repeat(np.array([0.0, 1.0, 5.0])[:, None, None], 10, axis=1)
    means = [np.mean(drawn) for drawn in itertools.product([0.0, 1.0, 5.0], repeat=3)]
    found = interval(values, num_resamples=20_000, confidence=0.8)
    # of 27 equally likely means; neither bound is near a step of their distribution
    for bound, share in ((found.low[0], 0.1), (found.high[0], 0.9)):
        assert bound == pytest.approx(np.quantile(means, share, method="inverted_cdf"), abs=1e-9)


def test_its_interval_is_wider_than_that_of_either_alone():
    stream = np.random.default_rng(0)
    values = stream.normal(size=(5, 1, 1)) + stream.normal(size=(1, 60, 1))
    both = interval(values)
    seeds = interval(np.repeat(values.mean(axis=1, keepdims=True), 60, axis=1))
    problems = interval(np.repeat(values.mean(axis=0, keepdims=True), 5, axis=0))
    width = [float(found.high[0] - found.low[0]) for found in (both, seeds, problems)]
    assert width[0] > max(width[1:])


def test_one_training_seed_says_nothing_of_another():
    values = np.random.default_rng(0).normal(size=(1, 50, 2))
    found = interval(values)
    alone = bootstrap.mean_intervals(values[0], num_resamples=2000, confidence=0.95, seed=0)
    assert found.value == pytest.approx(alone.value)
    assert found.low == pytest.approx(alone.low, abs=0.05)


@pytest.mark.parametrize(("num_seeds", "least", "most"), [(3, 0.72, 0.88), (5, 0.82, 0.93)])
def test_where_seeds_differ_it_covers_less_than_it_says(num_seeds, least, most):
    # why verdicts over seeds take `crossed_means`, which covers 93 to 97 of 100 here
    values = synthetic_pools.differences(
        0, num_seeds=num_seeds, num_problems=150, seed_deviation=0.08
    )
    found = interval(values, num_resamples=400)
    assert least <= synthetic_pools.coverage(found.low, found.high, 0.0) <= most
