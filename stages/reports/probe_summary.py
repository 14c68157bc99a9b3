"""A policy's probes over all problems, each with its interval."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stages.algorithms.statistics import wilson
from stages.algorithms.statistics.bootstrap import mean_intervals
from stages.records.completion import Completion
from stages.records.probe_value import ProbeValue
from stages.records.prompt import Prompt
from stages.reports import dev_accuracy
from stages.reports.rounding import rounded
from stages.rewards.probes import not_run
from stages.rewards.probes.catalogue import PROBES
from stages.rewards.probes.config import ProbeConfig
from stages.rewards.probes.given import Words

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


def metrics(
    policy: str,
    values: Values,
    drawn: Sequence[tuple[Prompt, Sequence[Completion]]],
    words: Words,
    config: ProbeConfig,
    *,
    is_chat: bool,
    generated_tokens: int,
    seed: int,
) -> dict[str, Any]:
    """The content of `data/probe_policy/<policy>/metrics.json`.

    Args:
        policy: its folder under data/.
        values: see `by_probe`.
        drawn: samples of the dev problems.
        words: what the entry names.
        config: how intervals are made.
        is_chat: whether the policy has a chat template.
        generated_tokens: by all probing.
        seed: of the resamples.
    """
    interval = {"num_resamples": config.num_bootstrap, "confidence": config.confidence}
    why = not_run.reasons(values, words, has_chat_template=is_chat)
    return {
        "policy": policy,
        "dev_accuracy": dev_accuracy.summarise(drawn, **interval, seed=seed),
        **summarise(values, why, **interval, seed=seed),
        "generated_tokens": generated_tokens,
    }
