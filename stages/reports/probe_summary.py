"""A policy's probes over all problems, each with its interval."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from stages.algorithms.statistics import wilson
from stages.algorithms.statistics.bootstrap import mean_intervals
from stages.records.probe_value import ProbeValue
from stages.reports.rounding import rounded
from stages.rewards.probes.catalogue import PROBES

Values = dict[str, dict[str, float]]
"""Probe -> problem's id -> value."""


def by_probe(rows: Iterable[ProbeValue]) -> Values:
    """The values of each probe that was run, in the order of the catalogue."""
    found: Values = defaultdict(dict)
    for row in rows:
        assert row.probe in PROBES, row.probe
        assert row.id not in found[row.probe], row
        found[row.probe][row.id] = row.value
    return {probe: found[probe] for probe in PROBES if probe in found}


def summarise(
    values: Values,
    not_run: Mapping[str, str],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """`{probes: {name: {value, low, high, problems}}, not_run: {name: why}}`.

    Each probe of the catalogue is in one of the two. Intervals are bootstrapped over problems; a
    rate that is 0 or 1 at every problem has Wilson's, where a bootstrap would claim certainty.

    Args:
        values: see `by_probe`.
        not_run: why the others have none, in words.
        num_resamples: of the problems.
        confidence: coverage of the intervals.
        seed: of the resamples.
    """
    assert set(values).isdisjoint(not_run), set(values) & set(not_run)
    assert set(values) | set(not_run) == set(PROBES), set(PROBES) - set(values) - set(not_run)
    probes = {}
    for probe, own in values.items():
        column = np.array(list(own.values()))
        ((value,), (low,), (high,)) = mean_intervals(
            column[:, None], num_resamples=num_resamples, confidence=confidence, seed=seed
        )
        if PROBES[probe].is_rate and (not column.any() or (column == 1.0).all()):
            low, high = wilson.interval(round(column.sum()), len(column), confidence=confidence)
        bounds = dict(zip(("value", "low", "high"), rounded([value, low, high]), strict=True))
        probes[probe] = bounds | {"problems": len(own)}
    return {
        "probes": probes,
        "not_run": {name: not_run[name] for name in PROBES if name in not_run},
    }
