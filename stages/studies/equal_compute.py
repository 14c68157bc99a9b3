"""Search against best-of-n and votes where both have cost the same, not at the same n.

A search is not compared at an equal number of samples: it also pays for what it drops, and for
reading steps (Snell et al. 2024, https://arxiv.org/abs/2408.03314). Costs are means over problems
and seeds; accuracies are paired by seed and problem (`statistics/crossed_means`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics import crossed_means
from stages.studies.markdown import rounded

Values = Float[np.ndarray, "seed problem"]
Unit = Literal["flops", "tokens"]
Budget = Literal["flops", "flops_once", "tokens"]
BUDGETS: dict[Budget, Unit] = {"flops": "flops", "flops_once": "flops", "tokens": "tokens"}
"""What a search has spent, what it would have with a prefix cache in both models, and the tokens
that it generated; each with what it is counted in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One way to choose among n samples of a pool."""

    accuracy: Mapping[int, Values]
    """By n, of each seed and problem."""
    costs: Mapping[Unit, Mapping[int, float]]
    """By the same n, mean of a problem: floating-point operations, generated tokens; rising."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """A search of the same problems, in the same order."""

    accuracy: Mapping[str, Values]
    """By the way to choose among its solutions."""
    costs: Mapping[Budget, float]
    """Mean of a problem. Samples of a pool read each prompt once as it is, so that their operations
    are compared with a search's as it was run and with a prefix cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a budget lies on a curve."""

    low: int
    """The largest n that costs no more."""
    high: int
    """The next; `low` at the end of the curve."""
    share: float
    """How far the budget is from the one to the other, from 0 to 1."""


def place(costs: Mapping[int, float], budget: float) -> Place | None:
    """Where `budget` lies; None where even the smallest n costs more."""
    ns = sorted(costs)
    rising = [costs[n] for n in ns]
    assert rising == sorted(set(rising)), "the cost rises with n"
    affordable = sum(cost <= budget for cost in rising)
    if not affordable:
        return None
    low = affordable - 1
    high = min(affordable, len(ns) - 1)
    share = 0.0 if high == low else (budget - rising[low]) / (rising[high] - rising[low])
    return Place(low=ns[low], high=ns[high], share=share)


def compare(
    curves: Mapping[str, Curve],
    searches: Mapping[str, Searched],
    *,
    confidence: float,
) -> dict[str, Any]:
    """Accuracies with intervals over seeds and problems, and paired differences at equal compute.

    A search is compared with each curve at the largest n that costs no more, and at its very cost,
    where the curve is a line between its points (a share of the problems with the larger n). At
    the end of a curve there is no dearer point: then the search has had more, which `at_end` says.

    Args:
        curves: name -> curve.
        searches: name -> search.
        confidence: of the intervals.

    Returns:
        `curves`: name -> n -> {value, low, high, flops, tokens}. `searches`: name -> {flops,
        flops_once, tokens, accuracy: {way: {value, low, high}}, versus: {budget: {curve: {n,
        n_cost, at_end, ways: {way: {at_n, interpolated}}}}}} with the differences search minus
        curve as {difference, low, high}; a curve without an n that is cheap enough is null.
    """
    columns: dict[tuple[str, ...], Values] = {}
    found: dict[str, Any] = {"curves": {}, "searches": {}}
    for name, curve in curves.items():
        for n, values in curve.accuracy.items():
            columns["curves", name, str(n)] = values
    for name, search in searches.items():
        for way, values in search.accuracy.items():
            columns["searches", name, way] = values
            for budget, unit in BUDGETS.items():
                for other, curve in curves.items():
                    at = place(curve.costs[unit], search.costs[budget])
                    if at is not None:
                        key = (name, budget, other, way)
                        below, above = curve.accuracy[at.low], curve.accuracy[at.high]
                        columns[*key, "at_n"] = values - below
                        line = (1.0 - at.share) * below + at.share * above
                        columns[*key, "interpolated"] = values - line
    found_means = crossed_means.estimate(
        np.stack(list(columns.values()), axis=-1), confidence=confidence
    )
    bounds = zip(found_means.value, found_means.low, found_means.high, strict=True)
    numbers = dict(zip(columns, (rounded(row) for row in bounds), strict=True))
    for name, curve in curves.items():
        found["curves"][name] = {
            str(n): _named(numbers["curves", name, str(n)])
            | {unit: costs[n] for unit, costs in curve.costs.items()}
            for n in curve.accuracy
        }
    for name, search in searches.items():
        found["searches"][name] = {
            **search.costs,
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
    key: tuple[str, Budget, str],
    search: Searched,
    curve: Curve,
) -> dict[str, Any] | None:
    costs = curve.costs[BUDGETS[key[1]]]
    at = place(costs, search.costs[key[1]])
    if at is None:
        return None
    return {
        "n": at.low,
        "n_cost": costs[at.low],
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
