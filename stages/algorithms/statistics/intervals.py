"""Confidence intervals over problems: percentile bootstrap, and exact ones for constant columns.

The problem is the unit of resampling: its samples are averaged first (`problem_means`), because
they share its difficulty and are not independent evidence.
"""

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

Table = Float[np.ndarray, "problem column"]
Columns = Float[np.ndarray, " column"]
Numbers = Int[np.ndarray, " row"]
Counts = Int[np.ndarray, " problem"]
Kind = Literal["rate", "difference", "number"]
"""Range of a mean: from 0 to 1; of a difference of two rates, from -1 to 1; without bounds."""


class Interval(NamedTuple):
    """A number with the bounds of its confidence interval."""

    value: float
    low: float
    high: float


class IntervalColumns(NamedTuple):
    """Numbers with the bounds of their confidence intervals, by column."""

    value: Columns
    low: Columns
    high: Columns


def resamples(num_problems: int, num_resamples: int, seed: int) -> Iterator[Counts]:
    """Bootstrap counts of each problem in each resample: P draws with replacement of P problems.

    The draws depend only on the three arguments, so two columns on the same problems, with the same
    seed, are resampled in pairs.
    """
    assert num_problems > 0, "no problems"
    stream = np.random.default_rng(seed)
    for _ in range(num_resamples):
        yield np.bincount(stream.integers(0, num_problems, num_problems), minlength=num_problems)


def percentiles(values: Float[np.ndarray, "..."], confidence: float) -> Float[np.ndarray, "..."]:
    """The (1 - confidence)/2 and the (1 + confidence)/2 quantile over resamples, the first axis."""
    assert 0.0 < confidence < 1.0, confidence
    tail = (1.0 - confidence) / 2.0
    return np.nanquantile(values, [tail, 1.0 - tail], axis=0)


def bootstrap_means(
    values: Table, *, num_resamples: int, confidence: float, seed: int
) -> IntervalColumns:
    """Mean of each column over problems, with a percentile interval of the resampled means.

    For a difference between two methods, or two policies, give the column of differences on the
    same problems: the draws keep the pairing, so difficulty, which both share, cancels.

    "An Introduction to the Bootstrap" (Efron and Tibshirani 1993), chapter 13; for why
    problems are paired and clustered: "Adding Error Bars to Evals" (Miller 2024,
    https://arxiv.org/abs/2411.00640). 2,000 resamples place a bound of a 95 % interval within about
    0.06 standard errors.

    A constant column has an interval of width zero, which is too narrow; `mean_over_problems` has
    one that is not.
    """
    draws = resamples(len(values), num_resamples, seed)
    means = np.stack([counts @ values for counts in draws]) / len(values)
    return IntervalColumns(values.mean(axis=0), *percentiles(means, confidence))


def bootstrap_ratios(
    numerators: Table, denominators: Table, *, num_resamples: int, confidence: float, seed: int
) -> IntervalColumns:
    """Sum of each column of `numerators` over that of `denominators`, with its interval.

    Precision and recall are such ratios: their denominators are random too, so they are not means
    over problems. Both sums are over the same draws. "An Introduction to the Bootstrap" (Efron and
    Tibshirani 1993), chapters 6 and 13. A ratio that is 0 on all problems, or 1, has Wilson's
    interval, with one trial for each problem whose denominator is above 0.

    A column whose denominators (never negative) sum to 0 is NaN. A resample in which they do is
    left out of that column's quantiles.
    """
    assert numerators.shape == denominators.shape, (numerators.shape, denominators.shape)
    draws = resamples(len(numerators), num_resamples, seed)
    ratios = np.stack([_divide(draw @ numerators, draw @ denominators) for draw in draws])
    value = _divide(numerators.sum(axis=0), denominators.sum(axis=0))
    unmeasured = np.isnan(value)
    bounds = percentiles(np.where(unmeasured, 0.0, ratios), confidence)
    counted = (denominators > 0).sum(axis=0)
    for rate in (0, 1):
        # Expected counts are sums of products, which round.
        for column in np.flatnonzero(np.abs(value - rate) < 1e-12):
            trials = int(counted[column])
            bounds[:, column] = wilson_interval(rate * trials, trials, confidence=confidence)
    return IntervalColumns(value, *np.where(unmeasured, np.nan, bounds))


def _divide(above: Columns, below: Columns) -> Columns:
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


def constant_difference_interval(
    difference: float, num_problems: int, *, confidence: float
) -> tuple[float, float]:
    """Interval of a difference d of two rates that is the same on all P problems.

        w = 1 - ((1 - confidence) / 2)^(1/P),   from d - w (1 + d) to d + w (1 - d)

    If a share w of all problems had another difference, at worst -1 or 1, a sample of P problems
    would miss them with probability (1 - confidence) / 2. For a rate this is the bound of Clopper
    and Pearson 1934.

    With d = 0 of 10 at 95 %: w = 1 - 0.025^(1/10) = 0.3085, from -0.3085 to 0.3085.
    """
    assert -1.0 <= difference <= 1.0, difference
    unseen = 1.0 - ((1.0 - confidence) / 2.0) ** (1.0 / num_problems)
    return difference - unseen * (1.0 + difference), difference + unseen * (1.0 - difference)


def problem_numbers(ids: Sequence[str]) -> Numbers:
    """Number of each row's problem, from 0 in order of appearance."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(ids))}
    return np.array([numbers[name] for name in ids], dtype=np.int64)


def problem_means(values: Float[np.ndarray, "row column"], problems: Numbers) -> Table:
    """Mean of each problem's rows, by problem number; problems without rows are left out."""
    _, places, counts = np.unique(problems, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, places, values)
    return sums / counts[:, None]


def mean_over_problems(
    values: Float[np.ndarray, " row"], problems: Numbers, kind: Kind, *, num_resamples: int,
    confidence: float, seed: int,
) -> Interval:  # fmt: skip
    """Mean over problems of the mean of each problem's rows, by `bootstrap_means`.

    The bootstrap of a rate or difference that is the same on all problems has width zero. A rate of
    0 or 1 has `wilson_interval` instead; a difference, `constant_difference_interval`; any other
    rate x, that of 2 x - 1 (a judge who always prefers the first has 1/2 where both orders count).
    """
    means = problem_means(values[:, None], problems)
    value, number = float(means[0, 0]), len(means)
    if kind == "number" or (means != value).any():
        estimates = bootstrap_means(
            means, num_resamples=num_resamples, confidence=confidence, seed=seed
        )
        return Interval(*(float(column[0]) for column in estimates))
    if kind == "difference":
        return Interval(value, *constant_difference_interval(value, number, confidence=confidence))
    if value in (0.0, 1.0):
        bounds = wilson_interval(round(value * number), number, confidence=confidence)
        return Interval(value, *bounds)
    low, high = constant_difference_interval(2.0 * value - 1.0, number, confidence=confidence)
    return Interval(value, (1.0 + low) / 2.0, (1.0 + high) / 2.0)
