"""Numbers of metrics.json, a seed's metrics: rounding, writing, reading."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

DIGITS = 6
"""Decimals: far below the width of any interval, above the rounding error of a sum in another
order."""


def round_metric(number: float) -> float:
    """Float with `DIGITS` decimals, without a negative zero."""
    return round(float(number), DIGITS) + 0.0


def with_interval(value: float, low: float, high: float) -> dict[str, float]:
    """A number with its confidence interval."""
    return {"value": round_metric(value), "low": round_metric(low), "high": round_metric(high)}


def read_metrics(folder: Path, seeds: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Content of `<folder>/<seed>/metrics.json` for each seed that has one."""
    paths = {seed: folder / str(seed) / "metrics.json" for seed in seeds}
    return {
        seed: json.loads(path.read_text(encoding="utf-8"))
        for seed, path in paths.items()
        if path.exists()
    }


def mean_over_seeds(
    metrics_by_seed: Mapping[int, Mapping[str, Any]], places: Sequence[str]
) -> dict[str, Any] | None:
    """Mean of a number over seeds, and its value for each seed; None if a seed lacks it."""
    values = {str(seed): find_metric(metrics, places) for seed, metrics in metrics_by_seed.items()}
    numbers = [value for value in values.values() if value is not None]
    if len(numbers) < len(values):
        return None
    return {"value": round_metric(fmean(numbers)), "seeds": values}


def read_with_last_step(path: Path) -> dict[str, Any]:
    """Content of a metrics.json, with the metrics of the last step of a history.jsonl beside it."""
    history = path.with_name("history.jsonl")
    lines = history.read_text(encoding="utf-8").splitlines() if history.is_file() else []
    last = json.loads(lines[-1])["metrics"] if lines else {}
    return last | json.loads(path.read_text(encoding="utf-8"))


def average_metrics(
    metrics: Iterable[Mapping[str, Any]], places_by_name: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Mean of each named number (`find_metric`) over the seeds, if every seed has it."""
    every = list(metrics)
    values = {
        name: [value for of_seed in every if (value := find_metric(of_seed, places)) is not None]
        for name, places in places_by_name.items()
    }
    return {
        name: fmean(of_seeds)
        for name, of_seeds in values.items()
        if 0 < len(of_seeds) == len(every)
    }


def find_metric(metrics: Mapping[str, Any], places: Sequence[str]) -> float | None:
    """Number at the first place that exists, with or without an interval; None: no such place.

    The place `heldout/auc` is a key with a slash, or the key `auc` in the mapping `heldout`.
    """
    for place in places:
        value: Any = metrics
        for name in [place] if place in metrics else place.split("/"):
            value = value.get(name) if isinstance(value, Mapping) else None
        value = value.get("value") if isinstance(value, Mapping) else value
        if value is not None:
            return float(value)
    return None
