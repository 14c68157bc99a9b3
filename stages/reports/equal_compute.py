"""Search against best-of-n and votes where both have cost the same, not at the same n."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics.bootstrap import mean_intervals
from stages.reports.rounding import rounded

Values = Float[np.ndarray, " problem"]
BUDGETS: tuple[Literal["flops", "flops_once"], ...] = ("flops", "flops_once")
"""What a search has spent, and what it would have with a prefix cache in both models."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One way to choose among n samples of a pool."""

    accuracy: Mapping[int, Values]
    """By n, of each problem."""
    flops: Mapping[int, float]
    """By the same n, mean floating-point operations of a problem; rising."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """A search of the same problems, in the same order."""

    accuracy: Mapping[str, Values]
    """By the way to choose among its solutions."""
    flops: float
    """Mean of a problem, as it was run."""
    flops_once: float
    """With a prefix cache; samples of a pool read each prompt once as it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a budget lies on a curve."""

    low: int
    """The largest n that costs no more."""
    high: int
    """The next; `low` at the end of the curve."""
    share: float
    """How far the budget is from the one to the other, from 0 to 1."""


def place(flops: Mapping[int, float], budget: float) -> Place | None:
    """Where `budget` lies; None where even the smallest n costs more."""
    ns = sorted(flops)
    costs = [flops[n] for n in ns]
    assert costs == sorted(set(costs)), "the cost rises with n"
    affordable = sum(cost <= budget for cost in costs)
    if not affordable:
        return None
    low = affordable - 1
    high = min(affordable, len(ns) - 1)
    share = 0.0 if high == low else (budget - costs[low]) / (costs[high] - costs[low])
    return Place(low=ns[low], high=ns[high], share=share)


def compare(
    curves: Mapping[str, Curve],
    searches: Mapping[str, Searched],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """Accuracies with intervals over problems, and paired differences at equal compute.

    A search is compared with each curve at the largest n that costs no more, and at its very cost,
    where the curve is a line between its points (a share of the problems with the larger n). At
    the end of a curve there is no dearer point: then the search has had more, which `at_end` says.

    Args:
        curves: name -> curve.
        searches: name -> search.
        num_resamples: of the problems.
        confidence: of the intervals.
        seed: of the resamples.

    Returns:
        `curves`: name -> n -> {value, low, high, flops}. `searches`: name -> {flops, flops_once,
        accuracy: {way: {value, low, high}}, versus: {budget: {curve: {n, n_flops, at_end, ways:
        {way: {at_n, interpolated}}}}}} with the differences search minus curve as {difference,
        low, high}; a curve without an n that is cheap enough is null.
    """
    columns: dict[tuple[str, ...], Values] = {}
    found: dict[str, Any] = {"curves": {}, "searches": {}}
    for name, curve in curves.items():
        for n, values in curve.accuracy.items():
            columns["curves", name, str(n)] = values
    for name, search in searches.items():
        for way, values in search.accuracy.items():
            columns["searches", name, way] = values
            for budget in BUDGETS:
                for other, curve in curves.items():
                    at = place(curve.flops, getattr(search, budget))
                    if at is not None:
                        key = (name, budget, other, way)
                        below, above = curve.accuracy[at.low], curve.accuracy[at.high]
                        columns[*key, "at_n"] = values - below
                        line = (1.0 - at.share) * below + at.share * above
                        columns[*key, "interpolated"] = values - line
    intervals = mean_intervals(
        np.stack(list(columns.values()), axis=1),
        num_resamples=num_resamples,
        confidence=confidence,
        seed=seed,
    )
    numbers = dict(
        zip(columns, (rounded(row) for row in zip(*intervals, strict=True)), strict=True)
    )
    for name, curve in curves.items():
        found["curves"][name] = {
            str(n): _named(numbers["curves", name, str(n)]) | {"flops": curve.flops[n]}
            for n in curve.accuracy
        }
    for name, search in searches.items():
        found["searches"][name] = {
            "flops": search.flops,
            "flops_once": search.flops_once,
            "accuracy": {way: _named(numbers["searches", name, way]) for way in search.accuracy},
            "versus": {
                budget: {
                    other: _versus(numbers, (name, budget, other), search, curve)
                    for other, curve in curves.items()
                }
                for budget in BUDGETS
            },
        }
    return found


def _versus(
    numbers: Mapping[tuple[str, ...], Sequence[float]],
    key: tuple[str, str, str],
    search: Searched,
    curve: Curve,
) -> dict[str, Any] | None:
    at = place(curve.flops, getattr(search, key[1]))
    if at is None:
        return None
    return {
        "n": at.low,
        "n_flops": curve.flops[at.low],
        "at_end": at.low == at.high,
        "ways": {
            way: {
                kind: _named(numbers[*key, way, kind], value="difference")
                for kind in ("at_n", "interpolated")
            }
            for way in search.accuracy
        },
    }


def _named(numbers: Sequence[float], value: str = "value") -> dict[str, float]:
    return dict(zip((value, "low", "high"), numbers, strict=True))
