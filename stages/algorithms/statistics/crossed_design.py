"""How small a difference an experiment of seeds and problems could see, and how large it must be.

On the variances that `crossed_means.estimate` finds (for one seed: Miller 2024,
https://arxiv.org/abs/2411.00640, section 5). All of it is an approximation by the t distribution:
the power of a test is that of a shifted t.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stages.algorithms.statistics.crossed_means import satterthwaite, t_quantile

MOST = 10**9
"""Problems or seeds beyond which an experiment is called impossible."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variances:
    """Of one difference; see `crossed_means.Spread`."""

    seed: float | None
    """None: a single seed was trained, and of others nothing is known."""
    problem: float
    rest: float
    pooled: bool
    """Whether the seeds were found to differ so little that they have the rest's degrees of
    freedom, which is then expected again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a test is asked for."""

    significance: float
    """Of the two-sided test, for example 0.05; of one of m comparisons adjusted by Holm, 0.05 / m
    is on the safe side."""
    power: float
    """Probability that it sees the difference, for example 0.8."""


def detectable(spread: Variances, wanted: Wanted, *, num_seeds: int, num_problems: int) -> float:
    """The smallest true mean difference that S seeds and P problems show.

        (t_{1 - significance/2} + t_{power}) sqrt(v_seed / S + v_problem / P + v_rest / (S P))

    with Satterthwaite's degrees of freedom of the expected mean squares
    A = v_rest + P v_seed, B = v_rest + S v_problem, R = v_rest, as in `crossed_means.estimate`; of
    a single seed, without A and R, P - 1.

    With v_seed 0, v_rest 0, v_problem 0.16, one seed, 101 problems, significance 0.05, power 0.8:
    (1.984 + 0.845) sqrt(0.16 / 101) = 0.1126.
    """
    assert 0.0 < wanted.significance < 1.0, wanted
    assert 0.0 < wanted.power < 1.0, wanted
    if spread.seed is None:
        assert num_seeds == 1, "of other seeds nothing is known"
        variance, degrees = (spread.problem + spread.rest) / num_problems, float(num_problems - 1)
    else:
        variance, degrees = _expected(spread, spread.seed, num_seeds, num_problems)
    freedom = np.array([degrees])
    quantiles = t_quantile(1.0 - wanted.significance / 2.0, freedom) + t_quantile(
        wanted.power, freedom
    )
    return float(quantiles[0]) * math.sqrt(variance)


def problems_needed(
    spread: Variances, effect: float, wanted: Wanted, *, num_seeds: int
) -> int | None:
    """How many problems like these show a true mean difference of `effect` with so many seeds.

    None: no number does, since the seeds differ too much among themselves.
    """
    return _fewest(
        lambda number: detectable(spread, wanted, num_seeds=num_seeds, num_problems=number), effect
    )


def seeds_needed(
    spread: Variances, effect: float, wanted: Wanted, *, num_problems: int
) -> int | None:
    """How many seeds like these show a true mean difference of `effect` on so many problems.

    None: no number does, since the problems differ too much, or one seed says nothing of others.
    """
    if spread.seed is None:
        return None
    return _fewest(
        lambda number: detectable(spread, wanted, num_seeds=number, num_problems=num_problems),
        effect,
    )


def _expected(
    spread: Variances, of_seed: float, num_seeds: int, num_problems: int
) -> tuple[float, float]:
    """The mean's variance and its degrees of freedom, from the expected mean squares."""
    assert num_seeds > 1, "the spread of several seeds was estimated: plan with several"
    seed_degrees = num_seeds - 1
    if spread.pooled and num_seeds > 2:
        seed_degrees *= num_problems - 1
    variance, degrees = satterthwaite(
        np.array([spread.rest + num_problems * of_seed]),
        np.array([spread.rest + num_seeds * spread.problem]),
        np.array([spread.rest]),
        np.array([float(seed_degrees)]),
        num_seeds=num_seeds,
        num_problems=num_problems,
    )
    return float(variance[0]), float(degrees[0])


def _fewest(detectable_with: Callable[[int], float], effect: float) -> int | None:
    """The smallest number from 2 on whose detectable difference is at most `effect`."""
    assert effect != 0.0, "an effect of 0 cannot be detected"
    low, high = 1, 2
    while detectable_with(high) > abs(effect):
        low, high = high, 2 * high
        if high > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if detectable_with(middle) <= abs(effect) else (middle, high)
    return high
