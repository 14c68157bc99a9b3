"""The release gate: on which probes is a policy worse than the baseline?

A probe is *worse* where the interval of the paired difference over the problems that both have lies
wholly on the side that `probe_catalogue` calls worse. That is what is named: a gate errs
to the side of naming. Of the two dozen probes of a policy one may so be named by chance in two, and
a percentile bootstrap is too sure where few problems differ. So it is also said what is *certain*:
worse, and with a p of a sign-flip test that stays below 1 - confidence after Holm's correction over
the policy's gated probes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stages.algorithms.statistics import intervals, paired_tests
from stages.algorithms.statistics.intervals import bootstrap_means
from stages.records.pools import Completion
from stages.records.problems import Prompt
from stages.rewards import answer_checker
from stages.studies.markdown import rounded
from stages.studies.probe_catalogue import PROBES, ProbeValue

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
        ((value,), (low,), (high,)) = bootstrap_means(
            column[:, None], num_resamples=num_resamples, confidence=confidence, seed=seed
        )
        if PROBES[probe].is_rate and (not column.any() or (column == 1.0).all()):
            low, high = intervals.wilson_interval(
                round(column.sum()), len(column), confidence=confidence
            )
        bounds = dict(zip(("value", "low", "high"), rounded([value, low, high]), strict=True))
        probes[probe] = bounds | {"problems": len(own)}
    return {
        "probes": probes,
        "not_run": {name: not_run[name] for name in PROBES if name in not_run},
    }


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
        ((value,), (low,), (high,)) = bootstrap_means(
            differences[:, None], num_resamples=num_resamples, confidence=confidence, seed=seed
        )
        sign = {"higher": 1.0, "lower": -1.0, None: 0.0}[definition.worse]
        worse = bool((low if sign > 0 else -high) > 0) and sign != 0
        if sign:
            p_values[probe] = paired_tests.sign_flip_test(
                sign * differences, num_draws=num_resamples, seed=seed
            )
        names = ("difference", "low", "high")
        compared[probe] = dict(zip(names, rounded([value, low, high]), strict=True)) | {
            "problems": len(both),
            "baseline": rounded([float(np.mean([baseline[probe][name] for name in both]))])[0],
            "worse": worse,
        }
    adjusted = dict(zip(p_values, paired_tests.holm_adjusted(list(p_values.values())), strict=True))
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


def dev_accuracy(
    problems: Sequence[tuple[Prompt, Sequence[Completion]]],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """`{value, low, high, problems, samples}`: the mean accuracy of one random sample."""
    means = np.array(
        [
            sum(answer_checker.is_correct(row.completion, prompt.answer) for row in pool)
            / len(pool)
            for prompt, pool in problems
        ]
    )
    ((value,), (low,), (high,)) = bootstrap_means(
        means[:, None], num_resamples=num_resamples, confidence=confidence, seed=seed
    )
    bounds = dict(zip(("value", "low", "high"), rounded([value, low, high]), strict=True))
    return bounds | {"problems": len(problems), "samples": len(problems[0][1])}
