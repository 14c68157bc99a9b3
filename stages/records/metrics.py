"""metrics.json, what a stage measured of a seed: how its numbers are written, and found again."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

DIGITS = 6
"""Decimals that are kept: far below any interval's width, above the rounding of a sum in another
order."""


def round_metric(number: float) -> float:
    """A plain float with `DIGITS` decimals; no negative zero."""
    return round(float(number), DIGITS) + 0.0


def with_interval(value: float, low: float, high: float) -> dict[str, float]:
    """A number with its confidence interval."""
    return {"value": round_metric(value), "low": round_metric(low), "high": round_metric(high)}


def read_metrics(folder: Path, seeds: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The content of `<folder>/<seed>/metrics.json` of each seed that has one."""
    paths = {seed: folder / str(seed) / "metrics.json" for seed in seeds}
    return {
        seed: json.loads(path.read_text(encoding="utf-8"))
        for seed, path in paths.items()
        if path.exists()
    }


def mean_over_seeds(
    found: Mapping[int, Mapping[str, Any]], places: Sequence[str]
) -> dict[str, Any] | None:
    """The mean of a number over seeds, and each seed's; None where one lacks it."""
    values = {str(seed): find_metric(metrics, places) for seed, metrics in found.items()}
    known = [value for value in values.values() if value is not None]
    if len(known) < len(values):
        return None
    return {"value": round_metric(fmean(known)), "seeds": values}


def find_metric(metrics: Mapping[str, Any], places: Sequence[str]) -> float | None:
    """The first number there is at one of the places, with or without an interval.

    A place `heldout/auc` is a name with a slash, or the name `auc` inside of `heldout`.
    """
    for place in places:
        one: Any = metrics
        for name in [place] if place in metrics else place.split("/"):
            one = one.get(name) if isinstance(one, Mapping) else None
        one = one.get("value") if isinstance(one, Mapping) else one
        if one is not None:
            return float(one)
    return None
