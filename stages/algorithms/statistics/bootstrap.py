"""Percentile bootstrap over problems: intervals for means and for paired differences.

The problem is the unit: samples of one problem are averaged before they come here,
because they share its difficulty and are not independent evidence.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Intervals(NamedTuple):
    """Means with the bounds of their confidence intervals, one of each for every column."""

    value: Float[np.ndarray, " column"]
    low: Float[np.ndarray, " column"]
    high: Float[np.ndarray, " column"]


def mean_intervals(
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
    of which every problem is 0 (or 1), `wilson.interval` has an honest one.

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
