import numpy as np
import pytest

from stages.algorithms.statistics import crossed_design
from stages.algorithms.statistics.crossed_design import Variances, Wanted, detectable
from stages.algorithms.statistics.crossed_means import estimate

WANTED = Wanted(significance=0.05, power=0.8)
ONE = Variances(seed=None, problem=0.16, rest=0.0, pooled=False)
SEVERAL = Variances(seed=0.0004, problem=0.01, rest=0.05, pooled=False)


def test_of_one_seed_it_is_the_paired_t_test():
    # t of 100 degrees: 1.983972 at 0.975, 0.845230 at 0.8; standard error 0.4 / sqrt(101)
    found = detectable(ONE, WANTED, num_seeds=1, num_problems=101)
    assert found == pytest.approx((1.983972 + 0.845230) * 0.4 / 101**0.5, abs=1e-6)


def test_what_is_detectable_is_detected_as_often_as_wanted():
    shape = (3, 120, 4000)
    stream = np.random.default_rng(0)
    effect = detectable(SEVERAL, WANTED, num_seeds=3, num_problems=120)
    values = (
        effect
        + stream.normal(0, SEVERAL.seed**0.5, (3, 1, 4000))
        + stream.normal(0, SEVERAL.problem**0.5, (1, 120, 4000))
        + stream.normal(0, SEVERAL.rest**0.5, shape)
    )
    found = estimate(values, confidence=0.95)
    assert np.mean(found.p_value <= 0.05) == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize("effect", [0.05, -0.08])
def test_the_numbers_needed_are_the_fewest_that_do(effect):
    problems = crossed_design.problems_needed(SEVERAL, effect, WANTED, num_seeds=8)
    assert problems is not None
    assert detectable(SEVERAL, WANTED, num_seeds=8, num_problems=problems) <= abs(effect)
    assert detectable(SEVERAL, WANTED, num_seeds=8, num_problems=problems - 1) > abs(effect)
    seeds = crossed_design.seeds_needed(SEVERAL, effect, WANTED, num_problems=200)
    assert seeds is not None
    assert detectable(SEVERAL, WANTED, num_seeds=seeds, num_problems=200) <= abs(effect)
    assert detectable(SEVERAL, WANTED, num_seeds=seeds - 1, num_problems=200) > abs(effect)


def test_no_number_of_problems_makes_up_for_seeds_that_differ():
    # with endless problems 3 seeds leave 0.02 / sqrt(3) times t of 2 degrees, 4.30 + 1.06
    assert crossed_design.problems_needed(SEVERAL, 0.05, WANTED, num_seeds=3) is None
    assert crossed_design.problems_needed(SEVERAL, 0.07, WANTED, num_seeds=3) is not None


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_an_experiment_is_planned_as_it_is_estimated(offset):
    # with and without a spread of the seeds: the same standard error and degrees of freedom
    stream = np.random.default_rng(4)
    values = stream.normal(0, 1, (3, 50)) + stream.normal(0, 1, (1, 50))
    values = values - values.mean(axis=1, keepdims=True) + offset * np.arange(3)[:, None]
    found = estimate(values[..., None], confidence=0.95)
    assert found.pooled[0] == (offset == 0.0)
    spread = Variances(
        seed=float(found.spread.seed[0]),
        problem=float(found.spread.problem[0]),
        rest=float(found.spread.rest[0]),
        pooled=bool(found.pooled[0]),
    )
    half = Wanted(significance=0.05, power=0.5)  # its quantile is 0
    planned = detectable(spread, half, num_seeds=3, num_problems=50)
    assert planned == pytest.approx(float(found.high[0] - found.value[0]))


def test_one_seed_says_nothing_of_others():
    assert crossed_design.seeds_needed(ONE, 0.1, WANTED, num_problems=50) is None


def test_a_difference_of_0_cannot_be_planned_for():
    with pytest.raises(AssertionError, match="cannot be detected"):
        crossed_design.problems_needed(ONE, 0.0, WANTED, num_seeds=1)
