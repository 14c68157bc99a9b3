"""A policy's numbers over all problems, each with its confidence interval."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics import intervals
from stages.algorithms.statistics.intervals import bootstrap_means
from stages.records.results import ProblemResult
from stages.reports.rounding import rounded

GREEDY = ("greedy_correct", "greedy_strict", "greedy_lenient")
MEANS = ("mean_accuracy", "mean_strict", "mean_lenient")
SHAPES = ("readable_rate", "format_rate", "truncation_rate")
NAMES = {"greedy_correct": "greedy_accuracy"}
"""Fields of ProblemResult that have another name as a metric."""
ACCURACY_AT = "accuracy_at"
MINUS_MEAN, MINUS_MAJORITY, MINUS_FORMAT = "minus_mean", "minus_majority", "minus_format"
MAJORITY, FORMAT = "majority", "format"
Path = tuple[str, ...]
"""The keys that lead to a number."""


def summarise(
    results: Sequence[ProblemResult], *, num_resamples: int, confidence: float, seed: int
) -> dict[str, Any]:
    """`{name: {value, low, high}}`, and `{table: {method: {n: {value, low, high}}}}`.

    `accuracy_at` holds each method's accuracy; `minus_mean` and `minus_majority` its difference,
    paired by problem, from one random sample and from the majority of as many; `minus_format`
    from what a check of the format would choose in its place. Intervals are
    bootstrapped over problems. Greedy accuracy is a plain rate, one trial a problem, and has
    Wilson's interval; so has any rate that is 0 or 1 on every problem, where a bootstrap would
    claim certainty.
    """
    columns = _columns(results)
    found = bootstrap_means(
        np.stack(list(columns.values()), axis=1),
        num_resamples=num_resamples,
        confidence=confidence,
        seed=seed,
    )
    metrics: dict[str, Any] = {
        "num_problems": len(results),
        "num_samples": results[0].num_samples,
    }
    for (path, values), value, low, high in zip(columns.items(), *found, strict=True):
        bounds = (low, high)
        if path[0].startswith("greedy") or (_is_rate(path) and _is_constant(values)):
            bounds = intervals.wilson_interval(
                round(values.sum()), len(values), confidence=confidence
            )
        place = metrics
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = dict(
            zip(("value", "low", "high"), rounded([value, *bounds]), strict=True)
        )
    return metrics


def flattened(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested numbers as `{"accuracy_at/pass/4/low": 0.5}`, for the journal."""
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}/")
        else:
            flat[prefix + name] = float(value)
    return flat


def _columns(results: Sequence[ProblemResult]) -> dict[Path, Float[np.ndarray, " problem"]]:
    columns: dict[Path, Float[np.ndarray, " problem"]] = {
        (NAMES.get(field, field),): np.array([float(getattr(row, field)) for row in results])
        for field in (*GREEDY, *MEANS, *SHAPES, "mean_tokens")
    }
    methods = {
        (method, n): np.array([row.accuracy_at[method][n] for row in results])
        for method, of_n in results[0].accuracy_at.items()
        for n in of_n
    }
    columns |= {(ACCURACY_AT, *key): values for key, values in methods.items()}
    mean = columns["mean_accuracy",]
    for (method, n), values in methods.items():
        columns[MINUS_MEAN, method, n] = values - mean
        if method != MAJORITY:
            columns[MINUS_MAJORITY, method, n] = values - methods[MAJORITY, n]
        way, _, scorer = method.partition("/")
        checked = methods.get((f"{way}/{FORMAT}", n))
        if checked is not None and scorer != FORMAT:
            columns[MINUS_FORMAT, method, n] = values - checked
    return columns


def _is_rate(path: Path) -> bool:
    return path[0] in (*MEANS, *SHAPES, ACCURACY_AT)


def _is_constant(values: Float[np.ndarray, " problem"]) -> bool:
    return bool((values == 0.0).all() or (values == 1.0).all())
