"""Forecast of the difference that a comparison can detect, before anything is trained.

The comparison is of mean accuracy, each policy minus the baseline, by the report's test
(`statistics/crossed_means`), at the level of Holm's method for the smallest p-value. The variances
over seeds and problems are assumed; once policies are evaluated, the report's column `detectable`
uses the measured ones.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from stages.algorithms.statistics import crossed_means
from stages.algorithms.statistics.crossed_means import (
    MIN_SEEDS,
    DifferenceForecast,
    PowerDesign,
    VarianceComponents,
)
from stages.report.comparison import POWER
from stages.report.stage_metrics import Plan

SEED_VARIANCE, PROBLEM_VARIANCE, SAMPLE_VARIANCE = 3e-4, 0.025, 0.27
"""Assumed variance components of the difference of two policies' accuracies: of the seed, of the
problem, and of one sample of each policy given both. Rounded means of the default run's four
policies: standard deviations of 1.7 points over seeds and of 16 points over problems. Two policies
that are right half of the time on every problem would have a sample variance of 0.5."""


class Design(NamedTuple):
    """Sizes of a comparison."""

    num_seeds: int
    num_problems: int
    num_samples: int
    """Of each test problem."""
    num_differences: int
    """Policies besides the baseline, without controls: the family that Holm's method adjusts."""
    confidence: float


def forecast_comparison(design: Design) -> DifferenceForecast:
    """Difference that a design detects with probability `POWER`, and half width of its interval."""
    residual = SAMPLE_VARIANCE / design.num_samples
    level = (1.0 - design.confidence) / design.num_differences
    return crossed_means.forecast_difference(
        VarianceComponents(*map(np.atleast_1d, (SEED_VARIANCE, PROBLEM_VARIANCE, residual))),
        PowerDesign(significance=level, power=POWER),
        confidence=design.confidence,
        num_seeds=design.num_seeds,
        num_problems=design.num_problems,
    )


def plan_comparison(params: Mapping[str, Any], tables: Plan, num_problems: int) -> Design:
    """The comparison that params.yaml and the rows of all tables plan."""
    baseline = params["baseline"]
    policies = [
        name
        for name, row in tables["policies"].items()
        if name != baseline and not row.get("control")
    ]
    return Design(
        num_seeds=len(params["seeds"]),
        num_problems=num_problems,
        num_samples=params["sampling"]["test"]["num_samples"],
        num_differences=len(policies),
        confidence=params["evaluation"]["confidence"],
    )


def describe_forecast(design: Design) -> str:
    """Sentence on the difference that the comparison can detect."""
    sizes = (
        f"{design.num_seeds} seeds, {design.num_problems:,} test problems and "
        f"{design.num_samples} samples of each"
    )
    if design.num_seeds < MIN_SEEDS:
        return (
            f"Forecast: with {design.num_seeds} seeds no difference can be tested; "
            f"train three or more."
        )
    if design.num_differences == 0:
        return "Forecast: there is no policy to compare with the baseline."
    forecast = forecast_comparison(design)
    conditions = (
        f"with a probability of {100 * POWER:.0f} % (confidence {100 * design.confidence:g} %, "
        f"Holm's method for {design.num_differences} differences)"
    )
    if forecast.detectable > 1.0:
        return (
            f"Forecast: with {sizes}, not even a difference in mean accuracy of 100 points is "
            f"detected {conditions}: train more seeds."
        )
    return (
        f"Forecast: with {sizes}, the comparison detects a difference in mean accuracy of "
        f"{100 * forecast.detectable:.1f} points {conditions}, and intervals are about "
        f"±{100 * forecast.half_width:.1f} points wide, with the variances of the default run; "
        f"the report computes both with its own."
    )
