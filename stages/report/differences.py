"""Means over seeds and problems, paired differences, and which of them are significant.

A difference is paired by seed and by problem, and its interval covers the chance of both
(`statistics/crossed_means`). The p-values of a family of comparisons are adjusted together by
Holm's method. Of one seed there is an interval over problems alone, which says nothing of another
training run: no p-value, and nothing is called significant.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stages.algorithms.statistics import crossed_means
from stages.algorithms.statistics.crossed_means import (
    CrossedMeans,
    Variances,
    Wanted,
    holm_adjusted,
)
from stages.report.estimates import rounded
from stages.report.results import Table

Interval = dict[str, Any]
"""`{value, low, high, seeds: {seed: value}}`."""
Difference = dict[str, Any]
"""An `Interval` with `p`, `p_holm`, `significant`, `degrees` and `detectable`; of one seed they
are None. `detectable` is the smallest true difference that would be significant with probability
`POWER`, at the level that Holm asks of the smallest p-value."""
POWER = 0.8
"""The usual convention (Cohen 1988)."""


def intervals(
    tables: Mapping[str, Table], seeds: Sequence[int], *, confidence: float
) -> dict[str, Interval]:
    """The mean of each table with its interval; of a share it stays within 0 and 1."""
    found = _estimate(tables, confidence)
    intervals = {name: _interval(found, at, tables[name], seeds) for at, name in enumerate(tables)}
    for name, one in intervals.items():
        if tables[name].min() >= 0.0 and tables[name].max() <= 1.0:
            one["low"], one["high"] = max(0.0, one["low"]), min(1.0, one["high"])
    return intervals


def compare(
    family: Mapping[str, Table], seeds: Sequence[int], *, confidence: float
) -> dict[str, Difference]:
    """The mean of each table of differences, and which differ from 0, adjusted together."""
    if not family:
        return {}
    found = _estimate(family, confidence)
    differences = {
        name: _interval(found, at, family[name], seeds) for at, name in enumerate(family)
    }
    if len(seeds) == 1:
        nothing = dict.fromkeys(("p", "p_holm", "significant", "degrees", "detectable"))
        return {name: one | nothing for name, one in differences.items()}
    adjusted = holm_adjusted([float(p) for p in found.p_value])
    wanted = Wanted(significance=(1.0 - confidence) / len(family), power=POWER)
    for at, (name, one) in enumerate(differences.items()):
        one |= {
            "p": rounded(found.p_value[at]),
            "p_holm": rounded(adjusted[at]),
            "significant": adjusted[at] <= 1.0 - confidence,
            "degrees": round(float(found.degrees[at]), 1),
            "detectable": rounded(_detectable(found, at, family[name], wanted)),
        }
    return differences


def _estimate(tables: Mapping[str, Table], confidence: float) -> CrossedMeans:
    return crossed_means.estimate(np.stack(list(tables.values()), axis=-1), confidence=confidence)


def _interval(found: CrossedMeans, at: int, table: Table, seeds: Sequence[int]) -> Interval:
    return {
        "value": rounded(found.value[at]),
        "low": rounded(found.low[at]),
        "high": rounded(found.high[at]),
        "seeds": {str(s): rounded(row.mean()) for s, row in zip(seeds, table, strict=True)},
    }


def _detectable(found: CrossedMeans, at: int, table: Table, wanted: Wanted) -> float:
    seed, problem, rest = (float(variance[at]) for variance in found.spread)
    return crossed_means.detectable(
        Variances(seed=seed, problem=problem, rest=rest, pooled=bool(found.pooled[at])),
        wanted,
        num_seeds=table.shape[0],
        num_problems=table.shape[1],
    )
