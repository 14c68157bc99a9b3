"""The release gate: on which probes is a policy worse than the baseline?

A probe is *worse* where the interval of the paired difference over the problems that both have lies
wholly on the side that `rewards/probes/catalogue` calls worse. That is what is named: a gate errs
to the side of naming. Of the two dozen probes of a policy one may so be named by chance in two, and
a percentile bootstrap is too sure where few problems differ. So it is also said what is *certain*:
worse, and with a p of a sign-flip test that stays below 1 - confidence after Holm's correction over
the policy's gated probes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from stages.algorithms.statistics import holm, sign_flip
from stages.algorithms.statistics.bootstrap import mean_intervals
from stages.reports.probe_summary import Values
from stages.reports.rounding import rounded
from stages.rewards.probes.catalogue import PROBES

MIN_PROBLEMS = 10
"""Fewer pairs say nothing: a bootstrap of them has no honest interval."""


def compare(
    policy: Values, baseline: Values, *, num_resamples: int, confidence: float, seed: int
) -> dict[str, Any]:
    """`{probes: {name: ...}, worse: [...], certain: [...], not_compared: {name: why}}`.

    Args:
        policy: probe -> problem -> value.
        baseline: likewise; of its problems.
        num_resamples: of the problems, and of the signs.
        confidence: coverage of the intervals.
        seed: of the resamples.
    """
    compared: dict[str, dict[str, Any]] = {}
    p_values: dict[str, float] = {}
    not_compared = {}
    for probe, definition in PROBES.items():
        both = [name for name in policy.get(probe, {}) if name in baseline.get(probe, {})]
        if len(both) < MIN_PROBLEMS:
            not_compared[probe] = f"{len(both)} problems in common, fewer than {MIN_PROBLEMS}"
            continue
        differences = np.array([policy[probe][name] - baseline[probe][name] for name in both])
        ((value,), (low,), (high,)) = mean_intervals(
            differences[:, None], num_resamples=num_resamples, confidence=confidence, seed=seed
        )
        sign = {"higher": 1.0, "lower": -1.0, None: 0.0}[definition.worse]
        worse = bool((low if sign > 0 else -high) > 0) and sign != 0
        if sign:
            p_values[probe] = sign_flip.p_value(
                sign * differences, num_draws=num_resamples, seed=seed
            )
        names = ("difference", "low", "high")
        compared[probe] = dict(zip(names, rounded([value, low, high]), strict=True)) | {
            "problems": len(both),
            "baseline": rounded([float(np.mean([baseline[probe][name] for name in both]))])[0],
            "worse": worse,
        }
    adjusted = dict(zip(p_values, holm.adjust(list(p_values.values())), strict=True))
    for probe, p in adjusted.items():
        compared[probe]["p_holm"] = rounded([p])[0]
    worse = [probe for probe, one in compared.items() if one["worse"]]
    return {
        "probes": compared,
        "gated": len(p_values),
        "worse": worse,
        "certain": [probe for probe in worse if adjusted[probe] <= 1 - confidence + 1e-12],
        "not_compared": not_compared,
    }


def verdict(gate: Mapping[str, Any], baseline: str) -> str:
    """The gate in one or two sentences."""
    if not gate["gated"]:
        return f"Not gated: no probe could be compared with {baseline}."
    if not gate["worse"]:
        return f"Passed: of {gate['gated']} gated probes none is worse than {baseline}."
    named = "; ".join(
        f"{PROBES[probe].what} ({probe}{', certain' if probe in gate['certain'] else ''})"
        for probe in gate["worse"]
    )
    return (
        f"Worse than {baseline} beyond the interval on {len(gate['worse'])} of {gate['gated']} "
        f"gated probes: {named}."
    )
