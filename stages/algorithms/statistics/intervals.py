"""Confidence intervals over problems: the percentile bootstrap, and Wilson's of a plain rate.

The problem is the unit: samples of one problem are averaged before they are drawn from, because
they share its difficulty and are not independent evidence (`problem_means`).
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Intervals(NamedTuple):
    """Means with the bounds of their confidence intervals, one of each for every column."""

    value: Float[np.ndarray, " column"]
    low: Float[np.ndarray, " column"]
    high: Float[np.ndarray, " column"]


def bootstrap_means(
    values: Float[np.ndarray, "problem column"],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> Intervals:
    """Mean of each column over problems, with a percentile interval.

    P problems are drawn with replacement `num_resamples` times, the same draws for every
    column; the interval runs from the (1 - confidence)/2 to the (1 + confidence)/2 quantile
    of the resampled means. For a difference between two methods, or two policies, give the
    column of differences on the same problems: the draws keep the pairing, so difficulty,
    which both share, cancels.

    "An Introduction to the Bootstrap" (Efron and Tibshirani 1993), chapter 13; for why
    problems are paired and clustered: "Adding Error Bars to Evals" (Miller 2024,
    https://arxiv.org/abs/2411.00640).

    What it cannot do: a column that is constant has an interval of width zero. For a rate
    of which every problem is 0 (or 1), `wilson_interval` has an honest one.

    Args:
        values: one row a problem, one column a quantity.
        num_resamples: 2,000 place a bound of a 95 % interval within about 0.05 standard errors.
        confidence: for example 0.95.
        seed: the draws are a function of it and of the number of problems alone.

    Returns:
        Means and bounds, one a column.
    """
    num_problems = len(values)
    assert num_problems > 0, "no problems"
    assert 0.0 < confidence < 1.0, confidence
    means = np.empty((num_resamples, values.shape[1]))
    stream = np.random.default_rng(seed)
    for resample in range(num_resamples):
        drawn = stream.integers(0, num_problems, num_problems)
        means[resample] = np.bincount(drawn, minlength=num_problems) @ values
    means /= num_problems
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail], axis=0)
    return Intervals(values.mean(axis=0), low, high)


def bootstrap_ratios(
    numerators: Float[np.ndarray, "problem column"],
    denominators: Float[np.ndarray, "problem column"],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> Intervals:
    """Sum of each column of `numerators` over that of `denominators`, with its interval.

        sum_problem a / sum_problem b

    Precision and recall are such ratios: their denominators are random too, so they are no
    means over problems. Problems are drawn with replacement, both sums of the same draws, the
    same draws for every column; the interval runs between the quantiles of the resampled
    ratios. "An Introduction to the Bootstrap" (Efron and Tibshirani 1993), chapters 6 and 13.

    A column whose denominators sum to 0 is NaN: there is nothing to count. A resample in which
    that happens says nothing and is left out of that column's quantiles.

    Args:
        numerators: one row a problem, one column a ratio; counts, or expected counts.
        denominators: of the same shape, not negative.
        num_resamples: see `bootstrap_means`.
        confidence: for example 0.95.
        seed: the draws are a function of it and of the number of problems alone.
    """
    num_problems = len(numerators)
    assert numerators.shape == denominators.shape, (numerators.shape, denominators.shape)
    assert num_problems > 0, "no problems"
    assert 0.0 < confidence < 1.0, confidence
    stream = np.random.default_rng(seed)
    ratios = np.empty((num_resamples, numerators.shape[1]))
    for resample in range(num_resamples):
        drawn = stream.integers(0, num_problems, num_problems)
        counts = np.bincount(drawn, minlength=num_problems)
        ratios[resample] = _divide(counts @ numerators, counts @ denominators)
    tail = (1.0 - confidence) / 2.0
    value = _divide(numerators.sum(axis=0), denominators.sum(axis=0))
    low, high = np.full_like(value, np.nan), np.full_like(value, np.nan)
    measured = ~np.isnan(value)
    if measured.any():
        low[measured], high[measured] = np.nanquantile(
            ratios[:, measured], [tail, 1.0 - tail], axis=0
        )
    return Intervals(value, low, high)


def _divide(
    above: Float[np.ndarray, " column"], below: Float[np.ndarray, " column"]
) -> Float[np.ndarray, " column"]:
    return np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)


def wilson_interval(
    num_successes: int, num_trials: int, *, confidence: float
) -> tuple[float, float]:
    """Wilson's score interval of a binomial proportion.

        (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)

    Right where the bootstrap and p ± z sqrt(p(1-p)/n) fail: few trials, rates near 0 or 1.
    "Probable Inference, the Law of Succession, and Statistical Inference" (Wilson 1927);
    its coverage: Brown, Cai and DasGupta 2001 (https://doi.org/10.1214/ss/1009213286).

    With 0 of 10 at 95 %: from 0 to z²/(10 + z²) = 3.8415/13.8415 = 0.2775.

    Args:
        num_successes: from 0 to `num_trials`.
        num_trials: independent trials, at least 1.
        confidence: for example 0.95.

    Returns:
        The lower and the upper bound, within [0, 1].
    """
    assert 0 <= num_successes <= num_trials, (num_successes, num_trials)
    assert num_trials > 0, "no trials"
    z_squared = NormalDist().inv_cdf((1.0 + confidence) / 2.0) ** 2
    rate = num_successes / num_trials
    centre = rate + z_squared / (2 * num_trials)
    spread = math.sqrt(
        z_squared * (rate * (1 - rate) / num_trials + z_squared / (4 * num_trials**2))
    )
    scale = 1 + z_squared / num_trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def problem_numbers(ids: Sequence[str]) -> Int[np.ndarray, " row"]:
    """The problem of each row as a number, from 0 in order of appearance."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(ids))}
    return np.array([numbers[name] for name in ids], dtype=np.int64)


def problem_means(
    values: Float[np.ndarray, "row column"], problems: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "problem column"]:
    """The mean of each problem's rows; problems without rows are absent.

    Args:
        values: one row a pair, or a completion.
        problems: the number of each row's problem.
    """
    _, places, counts = np.unique(problems, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, places, values)
    return sums / counts[:, None]
