"""A policy's numbers over all problems, each with its confidence interval."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics import wilson
from stages.algorithms.statistics.bootstrap import mean_intervals
from stages.records.problem_result import ProblemResult
from stages.reports.rounding import rounded

RATES = ("greedy_accuracy", "mean_accuracy", "readable_rate", "format_rate", "truncation_rate")
TABLES = ("pass_at", "majority_at", "best_of")
DIFFERENCES = {
    "best_of_minus_mean": ("best_of", "mean_accuracy"),
    "majority_minus_mean": ("majority_at", "mean_accuracy"),
    "best_of_minus_majority": ("best_of", "majority_at"),
}
"""Paired on the same problems and pools: name -> (what, minus what)."""


def summarise(
    results: Sequence[ProblemResult], *, num_resamples: int, confidence: float, seed: int
) -> dict[str, Any]:
    """`{name: {value, low, high}}`, and `{name: {n: {value, low, high}}}` for curves over n.

    Intervals are bootstrapped over problems. Greedy accuracy is a plain rate, one trial a
    problem, and has Wilson's interval; so has any rate that is 0 or 1 on every problem,
    where a bootstrap would claim certainty.
    """
    columns = _columns(results)
    found = mean_intervals(
        np.stack(list(columns.values()), axis=1),
        num_resamples=num_resamples,
        confidence=confidence,
        seed=seed,
    )
    metrics: dict[str, Any] = {
        "num_problems": len(results),
        "num_samples": results[0].num_samples,
    }
    for (name, values), value, low, high in zip(columns.items(), *found, strict=True):
        table, _, n = name.partition(".")
        bounds = (low, high)
        if name == "greedy_accuracy" or (_is_rate(table) and _is_constant(values)):
            bounds = wilson.interval(round(values.sum()), len(values), confidence=confidence)
        entry = dict(zip(("value", "low", "high"), rounded([value, *bounds]), strict=True))
        if n:
            metrics.setdefault(table, {})[n] = entry
        else:
            metrics[name] = entry
    return metrics


def flattened(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested numbers as `{"pass_at/4/low": 0.5}`, for the journal."""
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}/")
        else:
            flat[prefix + name] = float(value)
    return flat


def _columns(results: Sequence[ProblemResult]) -> dict[str, Float[np.ndarray, " problem"]]:
    rows = [
        {
            "greedy_accuracy": float(row.greedy_correct),
            "mean_accuracy": row.mean_accuracy,
            "readable_rate": row.readable_rate,
            "format_rate": row.format_rate,
            "truncation_rate": row.truncation_rate,
            "mean_tokens": row.mean_tokens,
        }
        | {f"{table}.{n}": value for table in TABLES for n, value in getattr(row, table).items()}
        for row in results
    ]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    for name, (what, minus) in DIFFERENCES.items():
        for n in getattr(results[0], what):
            other = columns.get(f"{minus}.{n}", columns["mean_accuracy"])
            columns[f"{name}.{n}"] = columns[f"{what}.{n}"] - other
    return columns


def _is_rate(name: str) -> bool:
    return name in RATES or name in TABLES


def _is_constant(values: Float[np.ndarray, " problem"]) -> bool:
    return bool((values == 0.0).all() or (values == 1.0).all())
