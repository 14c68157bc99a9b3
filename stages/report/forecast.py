"""Forecast of the difference that a comparison can detect, before anything is trained.

Compared is mean accuracy, of each policy minus the baseline, by the test of the report
(`statistics/crossed_means`), at the level that Holm's method asks of the smallest p-value. How much
differences vary over seeds and problems is known from the evaluations of an earlier run, where
there are any; else it is assumed.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from stages.algorithms.statistics import crossed_means
from stages.algorithms.statistics.crossed_means import (
    MIN_SEEDS,
    DifferenceForecast,
    PowerDesign,
    VarianceComponents,
)
from stages.records.metrics import round_metric
from stages.report.comparison import POWER
from stages.report.estimates import MEAN, Results, Table, find_not_evaluated, read_results
from stages.report.stage_metrics import Plan
from stages.rows import DATA

POINTS = (1, 2, 5, 10)
"""Differences in mean accuracy, in points, whose sizes are forecast."""
MAX_SEEDS = 1000
"""More seeds than that are called impossible."""


class Components(NamedTuple):
    """Variance components of a difference of two policies' accuracies on a problem."""

    seed: float
    """Variance of what a training seed adds on every problem."""
    problem: float
    """Variance of what a problem adds under every seed."""
    interaction: float
    """Variance of what a seed adds on a single problem."""
    sample: float
    """Variance of a single sample of each policy, on one problem with one seed."""


ASSUMED = Components(seed=1e-4, problem=0.01, interaction=0.0, sample=0.27)
"""Rounded means of the default run's four policies: standard deviations of 1 point over seeds and
of 10 points over problems. Two policies that are right half of the time, whatever the problem,
have a `sample` of 0.5."""


class Design(NamedTuple):
    """Sizes of a comparison."""

    num_seeds: int
    num_problems: int
    num_samples: int
    """Of each test problem."""
    num_differences: int
    """Policies besides the baseline, without controls: the family that Holm's method adjusts."""
    confidence: float


def estimate_components(results: Results) -> Components | None:
    """Components of the differences from the baseline, the mean over the other policies.

    None where there is no other policy, or nothing varies, as where no policy is ever right. A
    single seed shows no variance over seeds: that component is then the one of `ASSUMED`.
    """
    baseline, *policies = (tables[MEAN] for tables in results.tables.values())
    if not policies:
        return None
    columns = zip(
        *(_separate(policy, baseline, results.num_samples) for policy in policies), strict=True
    )
    components = Components(*(max(0.0, fmean(column)) for column in columns))
    return components if any(components[1:]) else None


def _separate(policy: Table, baseline: Table, num_samples: int) -> Components:
    """Components of one difference; that of seeds may be negative, so that its mean is unbiased.

    Samples add p (1 - p) of each policy, unbiased. Where both policies draw with the same random
    numbers, it is less than that: never more than the residual variance.
    """
    difference = policy - baseline
    num_seeds, num_problems = difference.shape
    estimate = crossed_means.estimate_means(difference[..., None], confidence=0.5).components
    v_problem, v_res = (float(value.item()) for value in (estimate.problem, estimate.residual))
    degrees = max(1, num_samples - 1)
    of_samples = (
        sum(float((table * (1.0 - table)).mean()) for table in (policy, baseline)) / degrees
    )
    if num_seeds == 1:  # `problem` is all there is
        of_samples = min(of_samples, v_problem)
        return Components(ASSUMED.seed, v_problem - of_samples, 0.0, of_samples * num_samples)
    of_samples = min(of_samples, v_res)
    v_seed = float(difference.mean(axis=1).var(ddof=1)) - v_res / num_problems
    return Components(v_seed, v_problem, v_res - of_samples, of_samples * num_samples)


def forecast_comparison(components: Components, design: Design) -> DifferenceForecast:
    """Difference that this design detects with probability `POWER`, and half width of intervals."""
    residual = components.interaction + components.sample / design.num_samples
    values = (components.seed, components.problem, residual)
    level = (1.0 - design.confidence) / max(1, design.num_differences)
    return crossed_means.forecast_difference(
        VarianceComponents(*map(np.atleast_1d, values)),
        PowerDesign(significance=level, power=POWER),
        confidence=design.confidence,
        num_seeds=design.num_seeds,
        num_problems=design.num_problems,
    )


def forecast_sizes(
    components: Components, design: Design, effect: float
) -> tuple[int | None, int | None]:
    """Test problems, and seeds, that detect a difference, the other sizes as they are.

    None: no number does, or one seed is trained.
    """

    def detectable(**size: int) -> float:
        return forecast_comparison(components, design._replace(**size)).detectable

    problems = crossed_means.find_fewest(lambda n: detectable(num_problems=n), effect)
    if design.num_seeds == 1:
        return problems, None
    seeds = crossed_means.find_fewest(lambda n: detectable(num_seeds=n), effect)
    return problems, seeds if seeds is not None and seeds <= MAX_SEEDS else None


def read_components(folder: Path, baseline: str, names: Collection[str]) -> tuple[Components, str]:
    """Components, and their source: the run whose evaluations are in `folder`, else ASSUMED."""
    seeds = sorted(int(path.name) for path in (folder / baseline).glob("[0-9]*"))
    policies = [
        name
        for name in names
        if all((folder / f"{name}/{seed}/per_problem.jsonl").is_file() for seed in seeds)
        and not find_not_evaluated(folder, [name], seeds)
    ]
    if not seeds or not policies:
        return ASSUMED, f"assumed, as {folder} has no evaluations of an earlier run"
    try:
        components = estimate_components(read_results(folder, [baseline, *policies], seeds, 0.95))
    except ValueError as error:  # of another run's problems, or without gold answers
        return ASSUMED, f"assumed, as the evaluations in {folder} are of no use: {error}"
    if components is None:
        return ASSUMED, f"assumed, as nothing varies in the evaluations in {folder}"
    source = f"of the run in {folder}, a mean over {len(policies)} policies and {len(seeds)} seeds"
    alone = (
        "; one seed says nothing of others, whose variance is assumed" if len(seeds) == 1 else ""
    )
    return components, source + alone


def plan_comparison(
    params: Mapping[str, Any], tables: Plan, num_problems: int
) -> tuple[Components, Design, str]:
    """Arguments of `describe_forecast`, from params.yaml and the rows of all tables."""
    baseline = params["baseline"]
    policies = [
        name
        for name, row in tables["policies"].items()
        if name != baseline and not row.get("control")
    ]
    design = Design(
        num_seeds=len(params["seeds"]),
        num_problems=num_problems,
        num_samples=params["sampling"]["test"]["num_samples"],
        num_differences=len(policies),
        confidence=params["evaluation"]["confidence"],
    )
    components, source = read_components(DATA / "evaluations", baseline, policies)
    return components, design, source


def describe_forecast(components: Components, design: Design, source: str) -> str:
    """Sentence on the difference that the comparison can detect."""
    sizes = (
        f"{design.num_seeds} seeds, {design.num_problems:,} test problems and "
        f"{design.num_samples} samples of each"
    )
    if design.num_seeds < MIN_SEEDS:
        return (
            f"Forecast: seeds that are trained: {design.num_seeds}, so no difference is tested; "
            f"train three or more."
        )
    if design.num_differences == 0:
        return "Forecast: there is no policy to compare with the baseline."
    forecast = forecast_comparison(components, design)
    conditions = (
        f"with a probability of {100 * POWER:.0f} % (confidence {100 * design.confidence:g} %, "
        f"Holm's method for {design.num_differences} differences)"
    )
    if forecast.detectable > 1.0:
        return (
            f"Forecast: with {sizes}, not even a difference in mean accuracy of 100 points is "
            f"detected {conditions}: train more seeds. Variances: {source}."
        )
    return (
        f"Forecast: with {sizes}, the comparison detects a difference in mean accuracy of "
        f"{100 * forecast.detectable:.1f} points {conditions}, and intervals are about "
        f"±{100 * forecast.half_width:.1f} points wide. Variances: {source}."
    )


def describe_sizes(components: Components, design: Design) -> Iterator[str]:
    """Test problems, or seeds, to detect 1, 2, 5 and 10 points: a sentence each."""
    if design.num_seeds < MIN_SEEDS or design.num_differences == 0:
        return
    for points in POINTS:
        problems, seeds = forecast_sizes(components, design, points / 100)
        of_problems = "no number of problems" if problems is None else f"{problems:,} test problems"
        of_seeds = "no number of seeds" if seeds is None else f"{seeds:,} seeds"
        yield (
            f"{points} point{'s' * (points > 1)}: {of_problems} with {design.num_seeds} seeds, or "
            f"{of_seeds} with {design.num_problems:,} problems."
        )


def compare_forecast(results: Results, gains: Mapping[str, Any]) -> dict[str, Any]:
    """`forecast`, by ASSUMED and by the components of this very run.

    Without gold answers, three seeds and another policy there is none. `gains`: measure -> policy
    -> its difference from the baseline, as tested.
    """
    differences = gains.get(MEAN, {})
    components = estimate_components(results) if differences else None
    if len(results.seeds) < MIN_SEEDS or components is None:
        return {}
    design = Design(
        num_seeds=len(results.seeds),
        num_problems=len(results.ids),
        num_samples=results.num_samples,
        num_differences=len(differences),
        confidence=results.confidence,
    )
    forecasts = {
        name: {
            key: round_metric(value)
            for key, value in forecast_comparison(values, design)._asdict().items()
        }
        for name, values in (("assumed", ASSUMED), ("of_this_run", components))
    }
    return {"forecast": {"power": POWER, **forecasts}}
