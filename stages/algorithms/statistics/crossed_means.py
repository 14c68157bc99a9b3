"""Means over training seeds and problems: t intervals, tests, and power analysis.

Both seeds and problems are random factors. `detectable_difference` is the smallest difference that
an experiment detects, and `required_sizes` the experiment that detects a given difference (for one
seed: Miller 2024, https://arxiv.org/abs/2411.00640, section 5). Both approximate the power of the
test by a shifted t distribution; `forecast_difference` simulates the test instead.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special  # pyright: ignore[reportMissingTypeStubs]

Cells = Float[np.ndarray, "seed problem column"]
Columns = Float[np.ndarray, " column"]
Clusters = Int[np.ndarray, " problem"]
Pooled = Bool[np.ndarray, " column"]
MAX_SIZE = 10**9
"""Problems or seeds beyond which an experiment is called impossible."""
ROUNDING = 1e-12
"""Means up to it are 0: what is equal, summed in another order, differs by as little in every cell,
and a test, or an interval without width, would take that for a difference."""
NUM_DRAWS = 20_000
"""Draws of mean squares in `forecast_difference`: a power of 80 % is met within 0.6 points."""


class VarianceComponents(NamedTuple):
    """Variance components of a table's cells: another experiment is planned by them."""

    seed: Columns
    """Variance of what a training seed adds on every problem; NaN if there is a single seed, from
    which it cannot be estimated."""
    problem: Columns
    """Variance of what a problem adds under every seed; with a single seed, all variance."""
    residual: Columns
    """Residual variance of a cell, sampling noise included; 0 with a single seed."""
    pooled: Pooled
    """Whether the seeds differ so little that they take the residual's degrees of freedom."""


class CrossedMeans(NamedTuple):
    """Means with interval, standard error and p-value, one of each for every column."""

    value: Columns
    low: Columns
    high: Columns
    standard_error: Columns
    degrees: Columns
    """Degrees of freedom of the t distribution."""
    p_value: Columns
    """Two-sided, of a true mean of 0: the interval leaves 0 out where it is at most
    1 - confidence."""
    components: VarianceComponents


def estimate_means(values: Cells, *, confidence: float) -> CrossedMeans:
    """Mean of each column over seeds and problems, which are crossed: every seed met every problem.

    The model is y[s, p] = mean + seed[s] + problem[p] + residual[s, p], all three random effects,
    drawn anew in another experiment. With the mean squares of the two-way table,

        A = P Σ_s (y[s,.] - y[.,.])² / (S - 1)                            E A = v_res + P v_seed
        B = S Σ_p (y[.,p] - y[.,.])² / (P - 1)                            E B = v_res + S v_problem
        R = Σ_sp (y[s,p] - y[s,.] - y[.,p] + y[.,.])² / ((S - 1)(P - 1))  E R = v_res

    the squared standard error of the mean is (A + max(B - R, 0)) / (S P), and the interval is
    mean ± t standard errors with Satterthwaite's degrees of freedom (1946,
    https://doi.org/10.2307/3002019),

        (A + max(B - R, 0))² / (A² / (S - 1) + B² / (P - 1) + R² / ((S - 1)(P - 1)))

    The estimator is that of readers and cases in the comparison of diagnostic tests (Dorfman,
    Berbaum and Metz 1992), and the point about so few degrees of freedom Hillis's (2007). Ours:
    where A < R, R replaces A, since E A is never below E R; and where A < R / 2, with three seeds
    or more, (S - 1)(P - 1) degrees of freedom replace S - 1. With two seeds they do not: two seeds
    may agree by chance. The threshold R / 2 comes from simulation: with R in its place, 95 %
    intervals of three seeds that differ a little hold the truth in 92 % of cases.

    With a single seed the squared standard error is B / P, with P - 1 degrees of freedom: the
    interval is over problems alone, and says nothing about another training run. A column of equal
    cells has an interval of width zero.

    Why no bootstrap: resampling three seeds underestimates how much seeds differ. Where they do, a
    95 % bootstrap interval over both factors (Davison and Hinkley 1997, section 3.8; Owen 2007,
    https://arxiv.org/abs/0711.2373) covers the truth in 77 % of cases with three seeds and in 86 %
    with five. The interval here covers it in 93 to 97 % with three to eight seeds (simulated in the
    tests); where seeds do not differ, in 97 to 99 %, with two seeds in 96 to 100 %.

    Where it is too sure: by chance few seeds agree, A is small, and Satterthwaite's degrees of
    freedom are then too many. It matters most where seeds add several times the variance of the
    mean that problems add. In the normal model coverage is at worst 92 % with three seeds and 87 %
    with two. At the small levels that Holm's method asks of the first of several comparisons it
    matters more: of 4 comparisons without any difference, that share a baseline, one or more are
    called significant in 2 to 14 % of cases with three seeds, of 8 in 2 to 20 %; at worst with five
    seeds in 8 and 9 %, with two in 28 and 43 %.

    At least two problems are needed. To compare two methods, pass a column of their differences,
    paired by seed and problem.
    """
    num_seeds, num_problems, _ = values.shape
    assert num_seeds > 0 and num_problems > 1, values.shape  # noqa: PT018
    assert 0.0 < confidence < 1.0, confidence
    mean = values.mean(axis=(0, 1))
    by_seed, by_problem = values.mean(axis=1), values.mean(axis=0)
    problem = num_seeds * np.square(by_problem - mean).sum(axis=0) / (num_problems - 1)
    if num_seeds == 1:
        variance, degrees = problem / num_problems, np.full_like(problem, num_problems - 1)
        nothing = np.zeros_like(problem)
        components = VarianceComponents(nothing + np.nan, problem, nothing, pooled=nothing > 0.0)
    else:
        seed = num_problems * np.square(by_seed - mean).sum(axis=0) / (num_seeds - 1)
        residual_degrees = (num_seeds - 1) * (num_problems - 1)
        residuals = values - by_seed[:, None] - by_problem + mean
        residual = np.square(residuals).sum(axis=(0, 1)) / residual_degrees
        pooled = (seed < residual / 2.0) & (num_seeds > 2)
        variance, degrees = _satterthwaite(seed, problem, residual, pooled, values.shape[:2])
        components = VarianceComponents(
            np.maximum(seed - residual, 0.0) / num_problems,
            np.maximum(problem - residual, 0.0) / num_seeds,
            residual,
            pooled,
        )
    error = np.sqrt(variance)
    value = np.where(np.abs(mean) <= ROUNDING, 0.0, mean)
    half = special.stdtrit(degrees, 1.0 - (1.0 - confidence) / 2.0) * error
    ratio = np.divide(
        np.abs(value), error, out=np.where(value == 0.0, 0.0, np.inf), where=error > 0.0
    )
    p_value = 2.0 * special.stdtr(degrees, -ratio)
    return CrossedMeans(value, value - half, value + half, error, degrees, p_value, components)


def collapse_clusters(
    values: Cells, clusters: Clusters
) -> Float[np.ndarray, "seed cluster column"]:
    """Cells of clusters of problems, from which `estimate_means` estimates the same mean.

    Problems of a cluster, such as the same problem met again, are no independent evidence. With N
    problems in C clusters, and m the mean of all cells of a column,

        u[s, c] = m + C / N Σ_{p in c} (y[s, p] - m)

    has the mean of y, as every seed of u has that of y. Of a single seed the squared standard error
    is the clustered one of Miller 2024 (section 2.2) but for its factor C / (C - 1), the linearised
    variance of a ratio of totals to sizes of clusters. Problems that are all clusters of their own
    are returned as they are.

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


def _satterthwaite(
    seed: Columns, problem: Columns, residual: Columns, pooled: Pooled, shape: tuple[int, ...]
) -> tuple[Columns, Columns]:
    """The mean's variance and degrees of freedom from A, B and R; see `estimate_means`."""
    num_seeds, num_problems = shape
    residual_degrees = float((num_seeds - 1) * (num_problems - 1))
    seed_degrees = np.where(pooled, residual_degrees, float(num_seeds - 1))
    of_seeds = np.maximum(seed, residual)
    total = of_seeds + np.maximum(problem - residual, 0.0)
    unsure = (
        of_seeds**2 / seed_degrees
        + problem**2 / (num_problems - 1)
        + residual**2 / residual_degrees
    )
    degrees = np.divide(
        total**2, unsure, out=np.full_like(total, residual_degrees), where=unsure > 0.0
    )
    return total / (num_seeds * num_problems), degrees


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of several p-values, in the order given.

    With the m p-values sorted, p_(1) <= ... <= p_(m),

        adjusted_(i) = max_{j <= i} min(1, (m - j + 1) p_(j))

    Calling significant what is at most alpha after adjustment errs anywhere in the table with
    probability at most alpha, whatever the dependence between the comparisons, if the p-values are
    right at levels as small as alpha / m (`estimate_means` says how far they are); nowhere weaker
    than Bonferroni's m p. "A Simple Sequentially Rejective Multiple Test Procedure" (Holm 1979).

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
    """Level of the two-sided test, for example 0.05; of one of m comparisons adjusted by Holm,
    0.05 / m is on the safe side."""
    power: float
    """Probability that it detects the difference, for example 0.8."""


def detectable_difference(
    components: VarianceComponents, design: PowerDesign, *, num_seeds: int, num_problems: int
) -> Columns:
    """Smallest true mean difference that S seeds and P problems detect with the design's power.

        (t_{1 - significance/2} + t_{power}) sqrt(v_seed / S + v_problem / P + v_res / (S P))

    with Satterthwaite's degrees of freedom of the expected mean squares, as in `estimate_means`; of
    a single seed, without A and R, P - 1.

    With v_seed 0, v_res 0, v_problem 0.16, one seed, 101 problems, significance 0.05, power 0.8:
    (1.984 + 0.845) sqrt(0.16 / 101) = 0.1126.
    """
    assert 0.0 < design.significance < 1.0, design
    assert 0.0 < design.power < 1.0, design
    assert np.isnan(components.seed).all() == (num_seeds == 1), (
        "plan with seeds as they were estimated"
    )
    if num_seeds == 1:
        variance = (components.problem + components.residual) / num_problems
        degrees = np.full_like(variance, num_problems - 1)
    else:
        variance, degrees = _satterthwaite(
            components.residual + num_problems * components.seed,
            components.residual + num_seeds * components.problem,
            components.residual,
            components.pooled & (num_seeds > 2),
            (num_seeds, num_problems),
        )
    critical = special.stdtrit(degrees, 1.0 - design.significance / 2.0)
    return (critical + special.stdtrit(degrees, design.power)) * np.sqrt(variance)


class DifferenceForecast(NamedTuple):
    """Expected precision of an experiment of a given size."""

    detectable: float
    """Smallest true mean difference that it detects, with the power of its `PowerDesign`."""
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

    `detectable_difference` takes the estimated variance for certain; with three seeds that differ
    much it promises a power of 80 % where the test has 75 %. Here mean squares are drawn from the
    normal model with these variance components (`pooled` is not used), and the test of
    `estimate_means` is applied to each draw:

        A ~ (v_res + P v_seed) chi2_(S-1) / (S-1), B and R likewise, mean ~ N(0, its variance)

    A true difference d only shifts the mean. So it is detected where mean + d exceeds the half
    width at the test's level, and the smallest d detected with `design.power` is that quantile of
    half width - mean. `confidence` is the level of the reported interval.
    """
    values = components.seed, components.problem, components.residual
    v_seed, v_problem, v_res = (float(value.item()) for value in values)
    stream = np.random.default_rng(0)

    def draw(expected: float, degrees: int) -> Columns:
        return expected * stream.chisquare(degrees, NUM_DRAWS) / degrees

    if num_seeds == 1:
        true_variance = (v_problem + v_res) / num_problems
        variance = draw(true_variance, num_problems - 1)
        degrees = np.full(NUM_DRAWS, num_problems - 1.0)
    else:
        of_seeds, of_problems = v_res + num_problems * v_seed, v_res + num_seeds * v_problem
        seed, problem = draw(of_seeds, num_seeds - 1), draw(of_problems, num_problems - 1)
        residual = draw(v_res, (num_seeds - 1) * (num_problems - 1))
        pooled = (seed < residual / 2.0) & (num_seeds > 2)
        variance, degrees = _satterthwaite(
            seed, problem, residual, pooled, (num_seeds, num_problems)
        )
        true_variance = (of_seeds + of_problems - v_res) / (num_seeds * num_problems)
    errors = np.sqrt(variance)
    shown: Columns = special.stdtrit(degrees, (1.0 + confidence) / 2.0) * errors
    tested: Columns = special.stdtrit(degrees, 1.0 - design.significance / 2.0) * errors
    mean = math.sqrt(true_variance) * stream.standard_normal(NUM_DRAWS)
    detectable = float(np.quantile(tested - mean, design.power))
    return DifferenceForecast(detectable, half_width=float(np.median(shown)))


def required_sizes(
    components: VarianceComponents,
    effect: float,
    design: PowerDesign,
    *,
    num_seeds: int,
    num_problems: int,
) -> tuple[int | None, int | None]:
    """Problems, with S seeds, that detect a mean difference of `effect`; and seeds, with P.

    `components` are of one column. None: no number detects it, or there is a single seed, from
    which the variance over seeds cannot be estimated.
    """
    difference = partial(detectable_difference, components, design)
    problems = find_fewest(lambda p: difference(num_seeds=num_seeds, num_problems=p), effect)
    if num_seeds == 1:
        return problems, None
    return problems, find_fewest(
        lambda s: difference(num_seeds=s, num_problems=num_problems), effect
    )


def find_fewest(detectable_with: Callable[[int], Columns | float], effect: float) -> int | None:
    """The smallest number from 2 on whose detectable difference is at most `effect`; None: none."""
    assert effect != 0.0, "an effect of 0 cannot be detected"
    low, high = 1, 2
    while detectable_with(high) > abs(effect):
        low, high = high, 2 * high
        if high > MAX_SIZE:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if detectable_with(middle) <= abs(effect) else (middle, high)
    return high
