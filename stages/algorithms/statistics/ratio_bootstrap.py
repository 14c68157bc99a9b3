"""Percentile bootstrap over problems for a ratio of two sums."""

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics.bootstrap import Intervals


def ratio_intervals(
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
        num_resamples: see `bootstrap.mean_intervals`.
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
