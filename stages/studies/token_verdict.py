"""Policies trained with several seeds, compared in pairs: differences, certainty, what it takes."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics import crossed_means
from stages.algorithms.statistics.crossed_means import CrossedMeans, Wanted, holm_adjusted
from stages.studies.markdown import rounded


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedResult:
    """One row of `data/studies/equal_tokens/rows/<seed>/<policy>.jsonl`."""

    policy: str
    seed: int
    """Of the training and the sampling; the problem is the same for all seeds."""
    id: str
    """The problem's id."""
    num_samples: int
    """N."""
    num_correct: int
    """Right completions among them."""
    greedy_correct: bool


MEASURES = {"mean": "mean accuracy of the samples", "greedy": "greedy accuracy"}
Tables = dict[str, Float[np.ndarray, "seed problem"]]
"""Measure -> a policy's value of each seed and problem."""


def table(results: Sequence[SeedResult]) -> Tables:
    """One policy's rows as a table for each measure.

    Raises:
        ValueError: the seeds have not met the same problems, in the same order.
    """
    by_seed = {
        seed: list(rows) for seed, rows in itertools.groupby(results, key=lambda row: row.seed)
    }
    ids = [[row.id for row in rows] for rows in by_seed.values()]
    if any(one != ids[0] for one in ids):
        raise ValueError(
            "expected the same test problems for every seed, found others. They are made with "
            "`data_seed`: run the study again."
        )
    return {
        "mean": np.array(
            [[row.num_correct / row.num_samples for row in rows] for rows in by_seed.values()]
        ),
        "greedy": np.array(
            [[float(row.greedy_correct) for row in rows] for rows in by_seed.values()]
        ),
    }


def compare(
    tables: Mapping[str, Tables], baseline: str, *, confidence: float, power: float
) -> dict[str, Any]:
    """The numbers of `data/studies/equal_tokens/metrics.json`.

    Two families of comparisons for each measure, and Holm's adjustment within each: all pairs of
    policies, and each policy with the baseline.

    Args:
        tables: of each policy, and of the baseline; all of the same seeds and problems.
        baseline: what the policies started from.
        confidence: of the intervals; what Holm's adjustment leaves at most 1 - confidence counts as
            resolved.
        power: with which a difference is to be seen, for what it takes to resolve it.
    """
    policies = [name for name in tables if name != baseline]
    shape = tables[baseline]["mean"].shape
    pairs = list(itertools.combinations(policies, 2))
    gains = [(policy, baseline) for policy in policies]
    return {
        "num_seeds": shape[0],
        "num_problems": shape[1],
        "confidence": confidence,
        "power": power,
        "baseline": baseline,
        "policies": {
            name: {
                measure: level(crossed_means.estimate(values[..., None], confidence=confidence))
                for measure, values in tables[name].items()
            }
            for name in tables
        },
        **{
            family: {
                measure: differences(tables, members, measure, confidence=confidence, power=power)
                for measure in MEASURES
            }
            for family, members in (("pairs", pairs), ("gains", gains))
        },
    }


def differences(
    tables: Mapping[str, Tables],
    members: Sequence[tuple[str, str]],
    measure: str,
    *,
    confidence: float,
    power: float,
) -> list[dict[str, Any]]:
    """Each pair's difference, the larger mean first, and whether the family's table resolves it."""
    found = []
    for one, other in members:
        values = tables[one][measure] - tables[other][measure]
        first, second = (one, other) if values.mean() >= 0.0 else (other, one)
        values = values if first == one else -values
        found.append((first, second, values))
    means = [
        crossed_means.estimate(values[..., None], confidence=confidence) for _, _, values in found
    ]
    adjusted = holm_adjusted([float(mean.p_value[0]) for mean in means])
    wanted = Wanted(significance=(1.0 - confidence) / len(members), power=power)
    rows = []
    for (first, second, values), mean, p_holm in zip(found, means, adjusted, strict=True):
        resolved = p_holm <= 1.0 - confidence
        rows.append(
            {
                "first": first,
                "second": second,
                **interval(mean),
                "p": rounded([float(mean.p_value[0])])[0],
                "p_holm": rounded([p_holm])[0],
                "resolved": resolved,
                "degrees": round(float(mean.degrees[0]), 1),
                **design(mean, values.shape, wanted, resolved=resolved),
            }
        )
    return rows


def design(
    mean: CrossedMeans, shape: tuple[int, ...], wanted: Wanted, *, resolved: bool
) -> dict[str, Any]:
    """What this experiment could have seen, and what it takes to see what it has found.

    `more_problems`, `more_seeds`: with as many seeds, or problems, as there are. None where no
    number does; absent where the difference is resolved, or exactly 0.
    """
    num_seeds, num_problems = shape
    known = mean.variances()
    least = crossed_means.detectable(known, wanted, num_seeds=num_seeds, num_problems=num_problems)
    found: dict[str, Any] = {
        "seed_deviation": None if known.seed is None else rounded([known.seed**0.5])[0],
        "detectable": rounded([least])[0],
    }
    effect = float(mean.value[0])
    if resolved or effect == 0.0:
        return found
    problems = crossed_means.problems_needed(known, effect, wanted, num_seeds=num_seeds)
    seeds = crossed_means.seeds_needed(known, effect, wanted, num_problems=num_problems)
    return found | {
        "more_problems": None if problems is None else max(0, problems - num_problems),
        "more_seeds": None if seeds is None else max(0, seeds - num_seeds),
    }


def level(mean: CrossedMeans) -> dict[str, float]:
    """The interval of an accuracy, which is never below 0 or above 1."""
    return {name: min(1.0, max(0.0, number)) for name, number in interval(mean).items()}


def interval(mean: CrossedMeans) -> dict[str, float]:
    """`{value, low, high}` of a single column."""
    numbers = rounded([float(column[0]) for column in (mean.value, mean.low, mean.high)])
    return dict(zip(("value", "low", "high"), numbers, strict=True))
