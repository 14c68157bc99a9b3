"""What a search is worth and what it costs, over all problems."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from stages.algorithms.statistics import intervals
from stages.algorithms.statistics.intervals import bootstrap_means
from stages.params import Params
from stages.reports.rounding import rounded
from stages.studies.search_results import ProblemSearch

ACCURACIES = ("best", "weighted", "majority", "any_right")
DIFFERENCES = {
    "best_minus_majority": ("best", "majority"),
    "weighted_minus_majority": ("weighted", "majority"),
}
"""Paired on the same solutions: name -> (what, minus what)."""
MEANS = (
    "num_solutions",
    "depth",
    "generated_tokens",
    "dropped_tokens",
    "read_tokens",
    "read_tokens_once",
    "scored_tokens",
    "scored_tokens_once",
    "flops",
    "flops_once",
)
"""Of a problem, on average."""


class SummaryConfig(Params):
    """How sure we are of the accuracies: section `search_solutions`."""

    num_bootstrap: int = Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = Field(gt=0, lt=1)
    """Coverage of the intervals."""


def summarise(
    results: Sequence[ProblemSearch],
    policy_parameters: int,
    process_parameters: int,
    config: SummaryConfig,
    *,
    seed: int,
) -> dict[str, Any]:
    """`{accuracies: {name: {value, low, high}}, per_problem: {name: mean}}` and what it is of.

    Intervals are bootstrapped over problems; an accuracy that is 0 or 1 on every problem has
    Wilson's.
    """
    columns = {
        name: np.array([float(getattr(row, name)) for row in results]) for name in ACCURACIES
    }
    columns |= {name: columns[a] - columns[b] for name, (a, b) in DIFFERENCES.items()}
    found = bootstrap_means(
        np.stack(list(columns.values()), axis=1),
        num_resamples=config.num_bootstrap,
        confidence=config.confidence,
        seed=seed,
    )
    accuracies = {}
    for (name, values), value, low, high in zip(columns.items(), *found, strict=True):
        bounds = (low, high)
        if name in ACCURACIES and ((values == 0.0).all() or (values == 1.0).all()):
            bounds = intervals.wilson_interval(
                round(values.sum()), len(values), confidence=config.confidence
            )
        accuracies[name] = dict(
            zip(("value", "low", "high"), rounded([value, *bounds]), strict=True)
        )
    means = [float(np.mean([getattr(row, name) for row in results])) for name in MEANS]
    return {
        "num_problems": len(results),
        "policy_parameters": policy_parameters,
        "process_parameters": process_parameters,
        "generated_tokens": sum(row.generated_tokens for row in results),
        "accuracies": accuracies,
        "per_problem": dict(zip(MEANS, rounded(means), strict=True)),
    }
