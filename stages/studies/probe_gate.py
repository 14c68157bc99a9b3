"""The release gate: on which probes is a policy worse than the baseline?

A probe is *worse* where the interval of the paired difference over the problems that both have lies
wholly on the side that `probe_catalogue` calls worse. That is what is named: a gate errs
to the side of naming. Of the two dozen probes of a policy one may so be named by chance in two. So
it is also said what is *certain*: worse, and with a p that stays below 1 - confidence after Holm's
correction over the policy's gated probes. Intervals and p are over seeds and problems
(`statistics/crossed_means`); of one seed they are of its checkpoint alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics import crossed_means, intervals
from stages.algorithms.statistics.crossed_means import holm_adjusted
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker
from stages.studies.markdown import named, rounded
from stages.studies.probe_catalogue import PROBES, ProbeValue

Values = dict[str, dict[str, tuple[float, ...]]]
"""Probe -> problem's id -> a value of each seed; problems that every seed has."""


def by_probe(seeds: Sequence[Iterable[ProbeValue]]) -> Values:
    """The values of each probe that was run with every seed, in the order of the catalogue."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number, rows in enumerate(seeds):
        for row in rows:
            own = found[row.probe, row.id]
            assert len(own) <= number, row
            if len(own) == number:
                own.append(row.value)
    whole: Values = {probe: {} for probe in PROBES}
    for (probe, name), own in found.items():
        if len(own) == len(seeds):
            whole[probe][name] = tuple(own)
    return {probe: own for probe, own in whole.items() if own}


def summarise(values: Values, not_run: Mapping[str, str], *, confidence: float) -> dict[str, Any]:
    """`{probes: {name: {value, low, high, problems}}, not_run: {name: why}}`.

    Each probe of the catalogue is in one of the two. A rate that is 0 or 1 at every problem has
    Wilson's interval.
    """
    assert set(values).isdisjoint(not_run), set(values) & set(not_run)
    assert set(values) | set(not_run) == set(PROBES), set(PROBES) - set(values) - set(not_run)
    probes = {}
    for probe, own in values.items():
        column = np.array(list(own.values())).T
        (value, low, high), _ = mean(column, confidence)
        if PROBES[probe].is_rate and (not column.any() or (column == 1.0).all()):
            low, high = intervals.wilson_interval(
                round(column[0].sum()), len(own), confidence=confidence
            )
        probes[probe] = named(value, low, high) | {"problems": len(own)}
    told = {name: not_run[name] for name in PROBES if name in not_run}
    return {"probes": probes, "not_run": told}


def mean(
    values: Float[np.ndarray, "seed problem"], confidence: float
) -> tuple[tuple[float, float, float], float]:
    """(value, low, high) over seeds and problems, and p; of one problem an interval of no width."""
    if values.shape[1] == 1:
        only = float(values.mean())
        return (only, only, only), 1.0
    found = crossed_means.estimate(values[..., None], confidence=confidence)
    return (found.value.item(), found.low.item(), found.high.item()), found.p_value.item()


MIN_PROBLEMS = 10
"""Fewer pairs say nothing: there is no honest interval of them."""


def compare(policy: Values, baseline: Values, *, confidence: float) -> dict[str, Any]:
    """`{probes: {name: ...}, worse: [...], certain: [...], not_compared: {name: why}}`.

    Both are of the same seeds; compared are the problems that both have.
    """
    compared: dict[str, dict[str, Any]] = {}
    p_values: dict[str, float] = {}
    not_compared = {}
    for probe, definition in PROBES.items():
        both = [name for name in policy.get(probe, {}) if name in baseline.get(probe, {})]
        if len(both) < MIN_PROBLEMS:
            not_compared[probe] = f"{len(both)} problems in common, fewer than {MIN_PROBLEMS}"
            continue
        own, other = (np.array([one[probe][name] for name in both]).T for one in (policy, baseline))
        (value, low, high), p_value = mean(own - other, confidence)
        numbers = rounded([value, low, high])
        compared[probe] = dict(zip(("difference", "low", "high"), numbers, strict=True)) | {
            "problems": len(both),
            "baseline": rounded([other.mean()])[0],
            "worse": {"higher": low > 0, "lower": high < 0, None: False}[definition.worse],
        }
        if definition.worse is not None:
            p_values[probe] = p_value
    adjusted = dict(zip(p_values, holm_adjusted(list(p_values.values())), strict=True))
    for probe, p in adjusted.items():
        compared[probe]["p_holm"] = rounded([p])[0]
    worse = [probe for probe, one in compared.items() if one["worse"]]
    certain = [probe for probe in worse if adjusted[probe] <= 1 - confidence + 1e-12]
    return {
        "probes": compared, "gated": len(p_values), "worse": worse, "certain": certain,
        "not_compared": not_compared,
    }  # fmt: skip


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


def dev_accuracy(
    seeds: Sequence[Sequence[tuple[Prompt, Sequence[Completion]]]], *, confidence: float
) -> dict[str, Any]:
    """`{value, low, high, problems, samples}`: the mean accuracy of one random sample."""
    shares = [
        [
            sum(answer_checker.is_correct(row.completion, prompt.answer) for row in pool)
            / len(pool)
            for prompt, pool in problems
        ]
        for problems in seeds
    ]
    bounds, _ = mean(np.array(shares), confidence)
    return named(*bounds) | {"problems": len(seeds[0]), "samples": len(seeds[0][0][1])}
