"""Policies trained with several seeds, compared in pairs: differences, certainty, what it takes."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.algorithms.statistics import crossed_means
from stages.algorithms.statistics.crossed_means import CrossedMeans, PowerDesign, holm_adjusted
from stages.records.metrics import round_metric, with_interval
from stages.report.comparison import POWER
from stages.report.estimates import Table
from stages.studies import study as studies


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedResult:
    """One row of `data/studies/equal_tokens/rows/<seed>/<policy>.jsonl`."""

    policy: str
    seed: int
    """Of the training and the sampling; the problem is the same for all seeds."""
    id: str
    num_samples: int
    num_correct: int
    greedy_correct: bool


MEASURES = {"mean": "mean accuracy of the samples", "greedy": "greedy accuracy"}
Tables = dict[str, Table]
"""Tables of a policy, by measure of `MEASURES`."""


def make_table(results: Sequence[SeedResult]) -> Tables:
    """Table of a policy's rows for each measure; a ValueError if the seeds' problems differ."""
    seeds = [list(rows) for _, rows in itertools.groupby(results, key=lambda row: row.seed)]
    ids = [[row.id for row in rows] for rows in seeds]
    if any(seed_ids != ids[0] for seed_ids in ids):
        raise ValueError(
            "expected the same test problems for every seed, found others. They are made with "
            "`data_seed`: run the study again."
        )
    return {
        "mean": np.array([[row.num_correct / row.num_samples for row in rows] for rows in seeds]),
        "greedy": np.array([[float(row.greedy_correct) for row in rows] for rows in seeds]),
    }


def compare_policies(
    tables: Mapping[str, Tables], baseline: str, *, confidence: float
) -> dict[str, Any]:
    """The numbers of `data/studies/equal_tokens/metrics.json`.

    Two families of comparisons for each measure, and Holm's adjustment within each: all pairs of
    policies, and each policy with the baseline. What it leaves at most 1 - `confidence` counts as
    resolved; what it takes to resolve a difference is for a probability of `POWER` to see it.
    """
    policies = [name for name in tables if name != baseline]
    families = {
        "pairs": list(itertools.combinations(policies, 2)),
        "gains": [(policy, baseline) for policy in policies],
    }
    num_seeds, num_problems = tables[baseline]["mean"].shape

    return {
        "num_seeds": num_seeds,
        "num_problems": num_problems,
        "confidence": confidence,
        "power": POWER,
        "baseline": baseline,
        "policies": {
            name: {
                measure: studies.estimate_interval(values, confidence=confidence, is_rate=True)
                for measure, values in table.items()
            }
            for name, table in tables.items()
        },
        **{
            family: {
                measure: test_differences(
                    {(a, b): tables[a][measure] - tables[b][measure] for a, b in members},
                    confidence=confidence,
                )
                for measure in MEASURES
            }
            for family, members in families.items()
        },
    }


def test_differences(
    family: Mapping[tuple[str, str], Table], *, confidence: float
) -> list[dict[str, Any]]:
    """Difference of each pair, the larger mean first, and whether the family resolves it.

    `detectable` is what this experiment could have seen. `more_problems` and `more_seeds` are what
    it takes to see what it has found, with as many seeds, or problems, as there are: None where no
    number does; absent where the difference is resolved, or exactly 0.
    """
    means_by_pair: dict[tuple[str, str], CrossedMeans] = {}
    for (first, second), values in family.items():
        sign, names = (1.0, (first, second)) if values.mean() >= 0.0 else (-1.0, (second, first))
        means_by_pair[names] = crossed_means.estimate_means(
            sign * values[..., None], confidence=confidence
        )
    adjusted = holm_adjusted([float(mean.p_value[0]) for mean in means_by_pair.values()])
    design = PowerDesign(significance=(1.0 - confidence) / len(family), power=POWER)
    num_seeds, num_problems = next(iter(family.values())).shape
    rows: list[dict[str, Any]] = []
    for ((first, second), mean), p_holm in zip(means_by_pair.items(), adjusted, strict=True):
        components, effect = mean.components, float(mean.value[0])
        detectable = crossed_means.detectable_difference(
            components, design, num_seeds=num_seeds, num_problems=num_problems
        )
        row = {
            "first": first,
            "second": second,
            **with_interval(mean.value[0], mean.low[0], mean.high[0]),
            "p": round_metric(mean.p_value[0]),
            "p_holm": round_metric(p_holm),
            "resolved": p_holm <= 1.0 - confidence,
            "seed_share": round_metric(mean.seed_share[0]),
            "seed_deviation": None if num_seeds == 1 else round_metric(components.seed[0] ** 0.5),
            "detectable": round_metric(detectable[0]),
        }
        if not row["resolved"] and effect != 0.0:
            problems, seeds = crossed_means.required_sizes(
                components, effect, design, num_seeds=num_seeds, num_problems=num_problems
            )
            row["more_problems"] = None if problems is None else max(0, problems - num_problems)
            row["more_seeds"] = None if seeds is None else max(0, seeds - num_seeds)
        rows.append(row)
    return rows
