"""How often the report's tests and intervals err, by simulation: `python -m tests.error_rates`.

Tables of nine policies that do not differ, of which the first is the baseline: true differences are
0, so that whatever is significant is an error, and an interval holds the truth where it holds 0.
Printed for each kind of cells and number of seeds, over all numbers of problems, at the worst
variance of the seeds: the share of families of 1, 4 and 8 comparisons with an error, by Holm's
method at 5 %; and the share of 95 % intervals that hold 0. Then the power of this test and of two
others, beside their errors. It takes six minutes of two cores. `--temperatures` prints what the
choice of a temperature adds to the variance of the default run's gains (`report/sharpening`).
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import special

from stages.algorithms.statistics.crossed_means import CrossedMeans, estimate_means
from stages.config import PARAMS_PATH, read_yaml
from stages.report import estimates, sharpening

LEVEL = 0.05
NUM_SEEDS = (3, 4, 5, 8)
NUM_PROBLEMS = (24, 100, 500)
SEED_RATIOS = (0.0, 0.1, 1.0, 10.0, 100.0)
"""Variance that the seeds add to a mean, in that which the problems add."""
FAMILIES = (1, 4, 8)
SHARED = 8
"""Comparisons drawn at once, with one baseline."""
CHUNK = 4_000_000
"""Cells drawn at once."""


class Kind(NamedTuple):
    """Kind of cells: normal ones, or shares of right samples."""

    rate: float | None = None
    """Of right samples; None: normal cells."""
    num_samples: int = 0
    spread: float = 1.0
    """Standard deviation of what a problem adds to one policy, in that of the residual."""

    def __str__(self) -> str:
        if self.rate is None:
            return f"normal, spread {self.spread:g}"
        return f"rate {self.rate:g}, {self.num_samples} samples"


KINDS = (
    Kind(),
    Kind(spread=0.0),
    *(Kind(rate, number) for rate, number in product((0.02, 0.5, 0.98), (1, 4, 16))),
)


class Case(NamedTuple):
    """One cell of the grid."""

    kind: Kind
    num_seeds: int
    num_problems: int
    seed_ratio: float


class Rates(NamedTuple):
    """How often a test erred, and its intervals held the truth."""

    errors: tuple[float, ...]
    """Share of families with an error, for each size in `FAMILIES`."""
    coverage: float
    num_tables: int


def draw_differences(case: Case, num_tables: int, stream: np.random.Generator) -> np.ndarray:
    """Policies minus the baseline: seed x problem x (table, comparison), without true difference.

    Shares of right samples are of probabilities Phi(level + problem + policy's problem + seed), in
    which the problem is the same for all policies. Each policy has the same distribution.
    """
    kind, num_seeds, num_problems, ratio = case

    def normal(*axes: int) -> np.ndarray:
        return stream.standard_normal((*axes, num_tables, SHARED + 1))

    if kind.rate is None:
        of_mean = (kind.spread**2 + 1.0 / num_seeds) / num_problems
        cells = np.sqrt(ratio * of_mean * num_seeds) * normal(num_seeds, 1)
        cells = cells + kind.spread * normal(1, num_problems) + normal(num_seeds, num_problems)
    else:
        problem, interaction = 0.5, 0.3
        deviation = np.sqrt(1.0 + problem**2 + interaction**2)
        level = special.ndtri(kind.rate)
        slope = np.exp(-(level**2) / 2) / np.sqrt(2 * np.pi) / deviation
        of_samples = kind.rate * (1.0 - kind.rate) / kind.num_samples
        of_mean = ((slope * interaction) ** 2 + of_samples / num_seeds) / num_problems
        seed = min(2.0, np.sqrt(ratio * of_mean * num_seeds) / slope)
        shared = problem * stream.standard_normal((1, num_problems, num_tables, 1))
        latent = level * np.sqrt(deviation**2 + seed**2) + shared + seed * normal(num_seeds, 1)
        probability = special.ndtr(latent + interaction * normal(1, num_problems))
        cells = stream.binomial(kind.num_samples, probability) / kind.num_samples
    return (cells[..., 1:] - cells[..., :1]).reshape(num_seeds, num_problems, -1)


def count_errors(p_values: np.ndarray, covered: np.ndarray) -> Rates:
    """Of tables of `SHARED` comparisons; Holm errs where the smallest p is at most level / m."""
    errors = [
        (p_values.reshape(-1, SHARED // size, size).min(-1) <= LEVEL / size).mean()
        for size in FAMILIES
    ]
    return Rates(tuple(map(float, errors)), float(covered.mean()), len(p_values) // SHARED)


def measure(case: Case, num_tables: int, seed: int = 0) -> Rates:
    """Rates of the report's test."""
    stream = np.random.default_rng(seed)
    at_once = max(1, CHUNK // (case.num_seeds * case.num_problems * SHARED))
    p_values, covered = list[np.ndarray](), list[np.ndarray]()
    for start in range(0, num_tables, at_once):
        values = draw_differences(case, min(at_once, num_tables - start), stream)
        is_share = case.kind.rate is not None
        mean: CrossedMeans = estimate_means(values, confidence=1 - LEVEL, largest=float(is_share))
        p_values.append(mean.p_value)
        covered.append(np.abs(mean.value) <= (mean.high - mean.low) / 2)
    return count_errors(np.concatenate(p_values), np.concatenate(covered))


def rare_coverage(
    expected: float, num_problems: int, num_tables: int, num_samples: int = 1
) -> float:
    """Coverage where so many problems are expected to differ, under each of three seeds alike.

    With several samples a problem's share of those that differ is uniform.
    """
    stream = np.random.default_rng(0)
    differs = stream.random((1, num_problems, num_tables)) < expected / num_problems
    shares = stream.random(differs.shape) if num_samples > 1 else 1.0
    cells = np.repeat(np.where(differs, shares, 0.0), 3, axis=0)
    values = stream.binomial(num_samples, cells) / num_samples
    mean = estimate_means(values, confidence=1 - LEVEL, largest=1.0)
    truth = expected / num_problems * np.mean(0.5 if num_samples > 1 else 1.0)
    return float(((mean.low <= truth) & (truth <= mean.high)).mean())


class MeanSquares(NamedTuple):
    """Means of tables of normal cells with their mean squares, drawn without the cells."""

    mean: np.ndarray
    seed: np.ndarray
    problem: np.ndarray
    residual: np.ndarray


def draw_mean_squares(
    variances: tuple[float, float, float], shape: tuple[int, int], number: int,
    stream: np.random.Generator,
) -> MeanSquares:  # fmt: skip
    """Of tables with the variances of seeds, problems and residual, by chi-square draws."""
    (of_seed, of_problem, residual), (num_seeds, num_problems) = variances, shape
    degrees = num_seeds - 1, num_problems - 1, (num_seeds - 1) * (num_problems - 1)
    expected = residual + num_problems * of_seed, residual + num_seeds * of_problem, residual
    squares = [e * stream.chisquare(d, number) / d for e, d in zip(expected, degrees, strict=True)]
    error = np.sqrt((expected[0] + expected[1] - residual) / (num_seeds * num_problems))
    return MeanSquares(error * stream.standard_normal(number), *squares)


def mixed_p_values(table: MeanSquares, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Ratios |mean| / error and p-values as `estimate_means` has them, but for rare differences."""
    num_seeds, num_problems = shape
    of_seeds = np.maximum(table.seed, table.residual)
    total = of_seeds + np.maximum(table.problem - table.residual, 0.0)
    ratio, share = np.abs(table.mean) / np.sqrt(total / np.prod(shape)), of_seeds / total
    tails = [2.0 * special.stdtr(number - 1, -ratio) for number in (num_seeds, num_problems)]
    return ratio, share * tails[0] + (1.0 - share) * tails[1]


def satterthwaite_p_values(table: MeanSquares, shape: tuple[int, int]) -> np.ndarray:
    """Of one t distribution, as of a mixed model in R's lmerTest."""
    num_seeds, num_problems = shape
    ratio, _ = mixed_p_values(table, shape)
    of_seeds = np.maximum(table.seed, table.residual)
    of_problems = np.maximum(table.problem - table.residual, 0.0)
    parts = of_seeds**2 / (num_seeds - 1) + of_problems**2 / (num_problems - 1)
    return 2.0 * special.stdtr((of_seeds + of_problems) ** 2 / parts, -ratio)


def bootstrap_p_values(
    table: MeanSquares, shape: tuple[int, int], stream: np.random.Generator, number: int = 4000
) -> np.ndarray:
    """Shares of so many tables, drawn with the estimated variances, whose ratio is larger."""
    ratios, _ = mixed_p_values(table, shape)
    p_values = np.empty(len(ratios))
    for at, (seed, problem, residual) in enumerate(zip(*table[1:], strict=True)):
        of_seed, of_problem = max(seed - residual, 0.0), max(problem - residual, 0.0)
        variances = of_seed / shape[1], of_problem / shape[0], residual
        drawn = draw_mean_squares(variances, shape, number, stream)
        p_values[at] = (mixed_p_values(drawn, shape)[0] >= ratios[at]).mean()
    return p_values


def compare_tests(num_seeds: int, seed_ratio: float) -> str:
    """Row: errors and power of three tests at 5 % and at Holm's level for eight, 100 problems.

    The difference to be detected is of 2.8 true standard errors: with known variances a test
    detects it in 80 % of tables at 5 %, in 53 % at 5/8 %.
    """
    shape, stream = (num_seeds, 100), np.random.default_rng(0)
    of_mean = (1.0 + 1.0 / num_seeds) / shape[1]
    variances = (seed_ratio * of_mean * num_seeds, 1.0, 1.0)
    texts = []
    for standard_errors in (0.0, 2.8):
        table = draw_mean_squares(variances, shape, 3000, stream)
        shift = standard_errors * np.sqrt((1.0 + seed_ratio) * of_mean)
        table = table._replace(mean=table.mean + shift)
        for p_values in (
            mixed_p_values(table, shape)[1], satterthwaite_p_values(table, shape),
            bootstrap_p_values(table, shape, stream),
        ):  # fmt: skip
            at = [f"{100 * (p_values <= level).mean():.1f}" for level in (LEVEL, LEVEL / SHARED)]
            texts.append(", ".join(at))
    return f"| {num_seeds} | {seed_ratio:g} | {' | '.join(texts)} |"


def measure_choice(num_dev: int, results: estimates.Results) -> str:
    """Row: what the choice of a temperature by so many dev problems adds to the default's gains.

    Shares of the squared standard error of each gain, with test problems in the default's
    proportion, and standard deviations of the gain; 4,000 draws with replacement.
    """
    stream, num_seeds = np.random.default_rng(0), len(results.seeds)
    tables, by_policy = [], list(results.temperatures.values())
    num_all = by_policy[0].dev[by_policy[0].sampled].shape[1]
    num_test = round(len(results.ids) * num_dev / num_all)
    draws = [stream.integers(num_all, size=num_dev) for _ in range(4000)]
    for policy in by_policy:
        means = {temperature: table.mean() for temperature, table in policy.test.items()}
        chosen = [
            sharpening.choose_temperature({t: table[:, some] for t, table in policy.dev.items()})
            for some in draws
        ]
        tables.append(([means[t] for t in chosen], policy.test[policy.best]))
    (baseline, base_table), *trained = tables
    shares, deviations = [], []
    for accuracies, table in trained:
        cells = (table - base_table)[..., None]
        seed, problem, residual = (
            float(part[0]) for part in estimate_means(cells, confidence=0.95).components
        )
        squared = seed / num_seeds + problem / num_test + residual / (num_seeds * num_test)
        added = np.var(np.array(accuracies) - np.array(baseline))
        shares.append(100 * added / squared)
        deviations.append(100 * np.sqrt(added))
    return (
        f"| {num_dev} | {num_test} | {max(shares):.1f} | {np.median(shares):.1f} | "
        f"{max(deviations):.1f} |"
    )


def main() -> None:
    """Print the tables as Markdown."""
    if "--temperatures" in sys.argv[1:]:
        print("| dev problems | test problems | largest share, % | median, % | largest deviation |")
        params = read_yaml(PARAMS_PATH)
        policies = dict.fromkeys([params["baseline"], *params["policies"]])
        results = estimates.read_results(
            Path("data/evaluations"), [*policies], params["seeds"], 1 - LEVEL
        )
        rows = [measure_choice(number, results) for number in (24, 50, 79, 100, 318)]
        print("|---" * 5 + "|", *rows, sep="\n")
        return
    num_tables = {24: 2000, 100: 1000, 500: 400}
    cases = [Case(*case) for case in product(KINDS, NUM_SEEDS, NUM_PROBLEMS, SEED_RATIOS)]
    numbers = [num_tables[case.num_problems] for case in cases]
    with ProcessPoolExecutor(2) as pool:
        rates = list(pool.map(measure, cases, numbers, range(len(cases))))
    shares = np.array([(*rate.errors, rate.coverage) for rate in rates])
    by_case = shares.reshape(-1, len(NUM_PROBLEMS), len(SEED_RATIOS), shares.shape[-1])
    by_ratio = np.average(by_case, axis=1, weights=list(num_tables.values()))
    print("| cells | seeds | errors of 1, 4, 8 | coverage |", "|---" * 4 + "|", sep="\n")
    for (kind, num_seeds), rows in zip(product(KINDS, NUM_SEEDS), by_ratio, strict=True):
        errors = ", ".join(f"{100 * share:.1f} %" for share in rows[:, :-1].max(axis=0))
        print(f"| {kind} | {num_seeds} | {errors} | {100 * rows[:, -1].min():.1f} % |")
    print("\n| problems | coverage where 1, 2, 3, 4, 5, 6 are expected to differ |\n|---|---|")
    for num_problems in NUM_PROBLEMS:
        coverages = [rare_coverage(number, num_problems, 4000) for number in range(1, 7)]
        print(f"| {num_problems} | {', '.join(f'{100 * share:.1f} %' for share in coverages)} |")
    names = " | ".join(f"{what}: {name}" for what in ("errors", "power")
                       for name in ("this test", "Satterthwaite", "bootstrap"))  # fmt: skip
    print(f"\n| seeds | variance of the seeds | {names} |", "|---" * 8 + "|", sep="\n")
    with ProcessPoolExecutor(2) as pool:
        print(*pool.map(compare_tests, *zip(*product(NUM_SEEDS, SEED_RATIOS[:-1]), strict=True)),
              sep="\n")  # fmt: skip


if __name__ == "__main__":
    main()
