"""Means over training seeds and problems: intervals, tests, and power analysis.

Both seeds and problems are random factors. `detectable_difference` is the smallest difference that
an experiment detects (for one seed: Miller 2024, https://arxiv.org/abs/2411.00640, section 5). It
treats the estimated variance as exact; `forecast_difference` simulates the test instead.
`python -m tests.error_rates` measures their error rates.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import special  # pyright: ignore[reportMissingTypeStubs]

Cells = Float[np.ndarray, "seed problem column"]
Columns = Float[np.ndarray, " column"]
Clusters = Int[np.ndarray, " problem"]
MIN_SEEDS = 3
"""Fewer seeds give intervals but no verdict: the spread of two has one degree of freedom."""
ROUNDING = 1e-12
"""Largest difference that counts as 0: equal values, summed in another order, may differ by it in
every cell, which a test, or an interval without width, would take for a difference."""
UNSEEN = 3.0
"""Number of problems that may still differ if none of many does, by the rule of three: with 3
expected, none is seen in exp(-3) = 5 % of tables (Hanley and Lippman-Hand 1983)."""
FEW = 6
"""Problems that differ from which the size of their differences is estimated."""
NUM_DRAWS = 20_000
"""Draws of mean squares in `forecast_difference`: a power of 80 % is met within 0.6 points."""


class VarianceComponents(NamedTuple):
    """Variance components of a table's cells, for the planning of another experiment."""

    seed: Columns
    """Variance of the seed effect; NaN if there is a single seed, from which it cannot be
    estimated."""
    problem: Columns
    """Variance of the problem effect; with a single seed, all variance."""
    residual: Columns
    """Residual variance of a cell, sampling noise included; 0 with a single seed."""


class CrossedMeans(NamedTuple):
    """Means with interval, standard error and p-value, one of each per column."""

    value: Columns
    low: Columns
    high: Columns
    standard_error: Columns
    seed_share: Columns
    """Share of the squared standard error that is estimated from the spread of the seeds."""
    p_value: Columns
    """Two-sided p-value of a true mean of 0; the interval excludes 0 if it is below
    1 - confidence."""
    components: VarianceComponents


def estimate_means(
    values: Cells, *, confidence: float, largest: float | Columns = 0.0
) -> CrossedMeans:
    """Mean of each column over seeds and problems, which are crossed: every seed has every problem.

    The model is y[s, p] = mean + seed[s] + problem[p] + residual[s, p], with three random effects
    that another experiment draws anew. With the mean squares of the two-way table,

        A = P Σ_s (y[s,.] - y[.,.])² / (S - 1)                            E A = v_res + P v_seed
        B = S Σ_p (y[.,p] - y[.,.])² / (P - 1)                            E B = v_res + S v_problem
        R = Σ_sp (y[s,p] - y[s,.] - y[.,p] + y[.,.])² / ((S - 1)(P - 1))  E R = v_res

    the squared standard error of the mean is

        error² = (max(A, R) + max(B - R, 0)) / (S P) + 3 q² / P²

    the estimator for readers and cases in comparisons of diagnostic tests (Dorfman, Berbaum and
    Metz 1992); it has max(A, R) because E A is never below E R. The last term is for rare
    differences: besides the few problems seen to differ, `UNSEEN` = 3 more may. q² is the mean
    square deviation from the median over the cells that deviate. If these are of fewer than `FEW`
    problems k (or P - 1), it is (k q² + (FEW - k) largest²) / FEW with the largest possible
    difference (1 for shares): else one problem of which 1 of 16 samples differs makes an interval a
    sixteenth as wide as none. With the default 0 it is q²: equal cells have one of no width.

    With w the share max(A, R) / (S P error²) of the seeds, the p-value of |mean| / error = t is

        p = w P(|t_(S-1)| > t) + (1 - w) P(|t_(P-1)| > t)

    and the interval is mean ± t error with p = 1 - confidence. Cochran (1964,
    https://doi.org/10.2307/2282691) weighs the quantiles of two such t distributions by the shares
    of the variance; ours weighs their tails, which at small levels is wider and at 5 % narrower.
    Satterthwaite's single t distribution errs more often than its level: few seeds often agree by
    chance, and its degrees of freedom are then too many. A bootstrap over three seeds (Owen 2007,
    https://arxiv.org/abs/0711.2373) has 95 % intervals that contain the truth in 77 % of cases.
    At worst, by the grid of `tests.error_rates` (normal cells and shares, 24 to 500 problems):

        seeds                                                        3     4     5     8
        false positive among 8 comparisons, %                      5.0   5.6   4.6   4.6
        95 % intervals that contain the truth, %                  94.9  95.0  94.9  94.7

    and, measured at 9b90c763,

        the first by Satterthwaite's distribution                 17.4  11.8   9.4   6.3
        the second by Satterthwaite's distribution                92.5  93.7  94.2  94.5
        median width in Satterthwaite's, seeds add no variance    1.29  1.18  1.16  1.17
        the same, seeds add as much as problems                   1.21  1.15  1.12  1.13
        the same, seeds add ten times as much                     1.06  1.05  1.04  1.04

    and of normal cells of 100 problems, where seeds add as much as problems, beside that and a
    parametric bootstrap, which draws tables with the estimated variances, in %:

        false positive at 5 %: ours                                2.7   3.4   3.6   4.3
            Satterthwaite's                                        5.4   5.1   4.7   5.1
            bootstrap                                              6.7   5.6   4.9   5.4
        false positive at 0.6 %, as Holm's of eight: ours          0.0   0.1   0.2   0.2
            Satterthwaite's                                        1.2   1.0   0.9   0.5
            bootstrap                                              1.8   1.5   1.1   0.6
        true mean of 2.8 standard errors is found at 5 %: ours    47.2  58.8  65.5  72.8
            Satterthwaite's                                       61.4  68.4  71.6  75.7
            bootstrap                                             68.8  71.2  73.4  76.2
        the same at 0.6 %: ours                                    1.3  11.0  15.3  30.5
            Satterthwaite's                                       32.5  36.1  37.5  43.5
            bootstrap                                             43.6  42.7  41.7  45.3

    Nearly equal shares, from one sample each, have errors below 1 % and intervals of up to twice
    the width.

    With a single seed the squared standard error is B / P + 3 q² / P², and w = 0: the interval is
    only over problems, and does not cover another training run.

    At least two problems are needed. To compare two methods, pass a column of their differences,
    paired by seed and problem.
    """
    num_seeds, num_problems, _ = values.shape
    assert num_seeds > 0 and num_problems > 1, values.shape  # noqa: PT018
    assert 0.0 < confidence < 1.0, confidence
    mean = values.mean(axis=(0, 1))
    by_seed, by_problem = values.mean(axis=1), values.mean(axis=0)
    problem = num_seeds * np.square(by_problem - mean).sum(axis=0) / (num_problems - 1)
    seed, residual = np.zeros_like(problem), np.zeros_like(problem)
    if num_seeds > 1:
        seed = num_problems * np.square(by_seed - mean).sum(axis=0) / (num_seeds - 1)
        residuals = values - by_seed[:, None] - by_problem + mean
        residual_degrees = (num_seeds - 1) * (num_problems - 1)
        residual = np.square(residuals).sum(axis=(0, 1)) / residual_degrees
    deviations = values - np.median(values, axis=(0, 1))
    deviating = np.abs(deviations) > ROUNDING
    square = np.square(deviations).sum(axis=(0, 1)) / np.maximum(deviating.sum(axis=(0, 1)), 1)
    few = min(FEW, num_problems - 1)  # of all different problems one may be the median
    unknown = np.maximum(1.0 - deviating.any(axis=0).sum(axis=0) / few, 0.0)
    unknown *= np.asarray(largest) > 0.0
    square = (1.0 - unknown) * square + unknown * np.square(largest)
    rare = UNSEEN * square / num_problems**2
    error, share = _error_and_share(seed, problem, residual, values.shape[:2], rare=rare)
    value = np.where(np.abs(mean) <= ROUNDING, 0.0, mean)
    half = _critical_ratio(share, 1.0 - confidence, values.shape[:2]) * error
    ratio = np.divide(
        np.abs(value), error, out=np.where(value == 0.0, 0.0, np.inf), where=error > 0.0
    )
    of_seeds, of_problems = _tails(ratio, values.shape[:2])
    p_value = share * of_seeds + (1.0 - share) * of_problems
    components = VarianceComponents(
        np.maximum(seed - residual, 0.0) / num_problems + (np.nan if num_seeds == 1 else 0.0),
        np.maximum(problem - residual, 0.0) / num_seeds,
        residual,
    )
    return CrossedMeans(value, value - half, value + half, error, share, p_value, components)


def _error_and_share(
    seed: Columns,
    problem: Columns,
    residual: Columns,
    shape: tuple[int, ...],
    *,
    rare: Columns | float = 0.0,
) -> tuple[Columns, Columns]:
    """Standard error and the seeds' share w, from A, B and R; see `estimate_means`."""
    of_seeds = np.maximum(seed, residual) / math.prod(shape)
    total = of_seeds + np.maximum(problem - residual, 0.0) / math.prod(shape) + rare
    share = np.divide(of_seeds, total, out=np.zeros_like(total), where=total > 0.0)
    return np.sqrt(total), share


def _tails(ratio: Columns, shape: tuple[int, ...]) -> tuple[Columns, Columns]:
    """P(|t| > ratio) with the degrees of freedom of the seeds, and of the problems."""
    degrees = max(1, shape[0] - 1), shape[1] - 1  # of a single seed the share is 0
    of_seeds, of_problems = (2.0 * special.stdtr(float(number), -ratio) for number in degrees)
    return of_seeds, of_problems


def _critical_ratio(share: Columns, level: float, shape: tuple[int, ...]) -> Columns:
    """The ratio t with the p-value `level`, for each share w.

    It lies between the quantiles of the two t distributions. There w follows from t, and t is
    interpolated between 4,096 values, with relative errors below 1e-5.
    """
    start, end = (
        float(special.stdtrit(float(degrees), 1.0 - level / 2.0))
        for degrees in (shape[1] - 1, max(1, shape[0] - 1))
    )
    ratios = np.linspace(start, end, 4096)
    of_seeds, of_problems = _tails(ratios, shape)
    gap = of_seeds - of_problems
    shares = np.divide(level - of_problems, gap, out=np.zeros_like(gap), where=gap != 0.0)
    shares[0], shares[-1] = 0.0, 1.0
    return np.interp(share, shares, ratios)


def collapse_clusters(
    values: Cells, clusters: Clusters
) -> Float[np.ndarray, "seed cluster column"]:
    """Cells per cluster of problems, from which `estimate_means` estimates the same mean.

    Problems of a cluster, such as repetitions of one, are not independent evidence. With N problems
    in C clusters, and m the mean of all cells of a column,

        u[s, c] = m + C / N Σ_{p in c} (y[s, p] - m)

    has the mean of y, also for each seed. For a single seed the squared standard error is the
    clustered one of Miller 2024 (section 2.2) but for its factor C / (C - 1), the linearised
    variance of a ratio of totals to sizes of clusters. If every cluster is one problem, the cells
    are returned unchanged.

    With cells 1, 1, 0, 1 of a seed and clusters 0, 0, 1, 2: m = 3/4 and u = 9/8, 3/16, 15/16.
    """
    labels, members = np.unique(clusters, return_inverse=True)
    num_problems, num_clusters = values.shape[1], len(labels)
    if num_clusters == num_problems:
        return values
    mean = values.mean(axis=(0, 1))
    deviations = values - mean
    sums = np.stack(
        [deviations[:, members == cluster].sum(axis=1) for cluster in range(num_clusters)], axis=1
    )
    return mean + num_clusters / num_problems * sums


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of several p-values, in the order given.

    With the m p-values sorted, p_(1) <= ... <= p_(m),

        adjusted_(i) = max_{j <= i} min(1, (m - j + 1) p_(j))

    If adjusted p-values of at most alpha are called significant, the probability of any false
    positive in the table is at most alpha, whatever the dependence between the comparisons, if the
    p-values are right at levels as small as alpha / m. The test is never weaker than Bonferroni's
    m p. "A Simple Sequentially Rejective Multiple Test Procedure" (Holm 1979).

    With (0.01, 0.04, 0.03): (0.03, 0.06, 0.06).
    """
    values = np.array(p_values)
    order = np.argsort(values, kind="stable")
    falling = np.arange(len(values), 0, -1) * values[order]
    adjusted = np.empty(len(values))
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, falling))
    return adjusted.tolist()


class PowerDesign(NamedTuple):
    """Significance and power of a test."""

    significance: float
    """Level of the two-sided test, for example 0.05; for one of m comparisons adjusted by Holm,
    0.05 / m is on the safe side."""
    power: float
    """Probability that the test detects the difference, for example 0.8."""


def detectable_difference(
    components: VarianceComponents, design: PowerDesign, *, num_seeds: int, num_problems: int
) -> Columns:
    """Smallest true mean difference that S seeds and P problems detect with the design's power.

        (t(significance) + t(2 (1 - power))) sqrt(v_seed / S + v_problem / P + v_res / (S P))

    with t(level) the ratio with that p-value in `estimate_means`, at the expected mean squares. The
    power has to be at least 1/2.

    With v_seed 0, v_res 0, v_problem 0.16, one seed, 101 problems, significance 0.05, power 0.8:
    (1.984 + 0.845) sqrt(0.16 / 101) = 0.1126.
    """
    assert 0.0 < design.significance < 1.0, design
    assert 0.5 <= design.power < 1.0, design
    assert np.isnan(components.seed).all() == (num_seeds == 1), (
        "plan with seeds as they were estimated"
    )
    shape, residual = (num_seeds, num_problems), components.residual
    error, share = _error_and_share(
        residual + num_problems * np.nan_to_num(components.seed),
        residual + num_seeds * components.problem,
        residual,
        shape,
    )
    levels = design.significance, 2.0 * (1.0 - design.power)
    return sum(_critical_ratio(share, level, shape) for level in levels) * error


class DifferenceForecast(NamedTuple):
    """Expected precision of an experiment of a given size."""

    detectable: float
    """Smallest true mean difference that it detects with the power of the `PowerDesign`."""
    half_width: float
    """Median half width of its interval."""


def forecast_difference(
    components: VarianceComponents,
    design: PowerDesign,
    *,
    confidence: float,
    num_seeds: int,
    num_problems: int,
) -> DifferenceForecast:
    """Difference that another experiment detects, by a simulation of its test.

    Mean squares are drawn from the normal model with these variance components, and the test of
    `estimate_means` (without its term for rare differences) is applied to each draw:

        A ~ (v_res + P v_seed) chi2_(S-1) / (S-1), B and R likewise, mean ~ N(0, its variance)

    A true difference d only shifts the mean. So it is detected if mean + d exceeds the half width
    at the test's level, and the smallest d detected with `design.power` is that quantile of
    half width - mean. `confidence` is the level of the reported interval.
    """
    values = components.seed, components.problem, components.residual
    v_seed, v_problem, v_res = (float(value.item()) for value in values)
    stream, shape = np.random.default_rng(0), (num_seeds, num_problems)

    def draw(expected: float, degrees: int) -> Columns:
        return expected * stream.chisquare(degrees, NUM_DRAWS) / degrees

    if num_seeds == 1:
        of_seeds, of_problems, v_res = 0.0, v_problem + v_res, 0.0
    else:
        of_seeds, of_problems = v_res + num_problems * v_seed, v_res + num_seeds * v_problem
    seed = draw(of_seeds, max(1, num_seeds - 1))
    problem = draw(of_problems, num_problems - 1)
    residual = draw(v_res, max(1, num_seeds - 1) * (num_problems - 1))
    errors, shares = _error_and_share(seed, problem, residual, shape)
    shown, tested = (
        _critical_ratio(shares, level, shape) * errors
        for level in (1.0 - confidence, design.significance)
    )
    true_variance = (of_seeds + of_problems - v_res) / (num_seeds * num_problems)
    mean = math.sqrt(true_variance) * stream.standard_normal(NUM_DRAWS)
    detectable = float(np.quantile(tested - mean, design.power))
    return DifferenceForecast(detectable, half_width=float(np.median(shown)))
