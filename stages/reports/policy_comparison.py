"""Paired differences between policies on the same problems."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics import paired_tests
from stages.algorithms.statistics.intervals import bootstrap_means
from stages.algorithms.statistics.paired_tests import minimum_detectable
from stages.records.results import ProblemResult
from stages.reports.policy_metrics import MAJORITY
from stages.reports.rounding import rounded

TESTED = ("greedy_accuracy", "mean_accuracy", MAJORITY)
"""The quantities of the table against the baseline: its comparisons are adjusted together."""
POWER = 0.8
"""Of the minimum detectable effect, the usual convention (Cohen 1988)."""
Columns = Mapping[str, Float[np.ndarray, " problem"]]


def compare(
    evaluations: Mapping[str, Mapping[str, Any]],
    results: Mapping[str, Sequence[ProblemResult]],
    made_by: Mapping[str, str],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """The content of `data/compare_policies/metrics.json`, but for the costs.

    Args:
        evaluations: for each policy, the baseline first, the content of its metrics.json.
        results: for each policy, its results on each problem.
        made_by: for each policy, the entry that made it (`train_dpo/dpo`).
        num_resamples: of the problems.
        confidence: coverage of the intervals of the differences.
        seed: of the resamples.

    Raises:
        ValueError: the results are of different problems.
    """
    baseline, *others = evaluations
    n = max(evaluations[baseline]["accuracy_at"][MAJORITY], key=int)
    columns = {policy: quantities(rows, n) for policy, rows in results.items()}
    for policy in others:
        check_same_problems(results[policy], results[baseline])
    options = {"num_resamples": num_resamples, "confidence": confidence, "seed": seed}
    versus = {
        policy: versus_baseline(columns[policy], columns[baseline], **options) for policy in others
    }
    adjust([versus[policy][name] for policy in others for name in TESTED])
    pairs = [
        {"first": first, "second": second}
        | difference(columns[first]["mean_accuracy"] - columns[second]["mean_accuracy"], **options)
        for first, second in itertools.combinations(evaluations, 2)
    ]
    adjust(pairs)
    return {
        "baseline": baseline,
        "num_problems": evaluations[baseline]["num_problems"],
        "num_samples": evaluations[baseline]["num_samples"],
        "n": int(n),
        "confidence": confidence,
        "policies": {
            policy: {"stage": made_by[policy].replace("/", "@")}
            | entry(evaluation)
            | ({"versus_baseline": versus[policy]} if policy in versus else {})
            for policy, evaluation in evaluations.items()
        },
        "pairs": pairs,
    }


def check_same_problems(
    results: Sequence[ProblemResult], reference: Sequence[ProblemResult]
) -> None:
    """Two policies were tested on the same problems.

    Raises:
        ValueError: they were not.
    """
    if [row.id for row in results] != [row.id for row in reference]:
        raise ValueError(
            f"Expected results on the same problems in the same order, found {len(results)} and "
            f"{len(reference)} that differ. They come from different runs: rerun `dvc repro`."
        )


def quantities(
    results: Sequence[ProblemResult], n: str
) -> dict[str, Float[np.ndarray, " problem"]]:
    """What policies are compared by, a number a problem; methods that choose among n samples."""
    plain = {
        "greedy_accuracy": "greedy_correct",
        "greedy_strict": "greedy_strict",
        "greedy_lenient": "greedy_lenient",
        **{name: name for name in ("mean_accuracy", "mean_strict", "mean_lenient", "mean_tokens")},
    }
    found = {
        name: np.array([float(getattr(row, field)) for row in results])
        for name, field in plain.items()
    }
    return found | {
        method: np.array([row.accuracy_at[method][n] for row in results])
        for method in results[0].accuracy_at
    }


def versus_baseline(
    ours: Columns, baseline: Columns, *, num_resamples: int, confidence: float, seed: int
) -> dict[str, dict[str, float]]:
    """`{quantity: {difference, low, high, ...}}`: ours minus the baseline's, paired by problem.

    Those of `TESTED` have a p-value: of greedy accuracy McNemar's, with the problems that
    `only_this` and `only_baseline` gets right; of the others that of `paired_test`. Mean accuracy
    also says which difference it could have `detectable`.
    """
    names = [name for name in ours if name in baseline]
    differences = {name: ours[name] - baseline[name] for name in names}
    intervals = bootstrap_means(
        np.stack(list(differences.values()), axis=1),
        num_resamples=num_resamples,
        confidence=confidence,
        seed=seed,
    )
    found: dict[str, dict[str, float]] = {
        name: named(interval) for name, *interval in zip(names, *intervals, strict=True)
    }
    greedy = differences["greedy_accuracy"]
    only_this, only_baseline = int((greedy > 0).sum()), int((greedy < 0).sum())
    found["greedy_accuracy"] |= {
        "only_this": only_this,
        "only_baseline": only_baseline,
        "p": paired_tests.mcnemar_test(only_this, only_baseline),
    }
    for name in TESTED[1:]:
        found[name]["p"] = paired_tests.z_test(differences[name])
    (found["mean_accuracy"]["detectable"],) = rounded(
        [
            minimum_detectable(
                differences["mean_accuracy"], significance=1.0 - confidence, power=POWER
            )
        ]
    )
    return found


def difference(
    values: Float[np.ndarray, " problem"], *, num_resamples: int, confidence: float, seed: int
) -> dict[str, float]:
    """`{difference, low, high, p}` of one difference."""
    found = bootstrap_means(
        values[:, None], num_resamples=num_resamples, confidence=confidence, seed=seed
    )
    return named([float(column[0]) for column in found]) | {"p": paired_tests.z_test(values)}


def named(interval: Sequence[float]) -> dict[str, float]:
    """A difference and its bounds."""
    value, low, high = rounded(interval)
    return {"difference": value, "low": low, "high": high}


def adjust(comparisons: Sequence[dict[str, Any]]) -> None:
    """Add `p_holm` to each, adjusted over all of them."""
    adjusted = paired_tests.holm_adjusted([one["p"] for one in comparisons])
    for one, p_holm in zip(comparisons, adjusted, strict=True):
        one["p_holm"] = p_holm


def entry(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """One policy in `data/compare_policies/metrics.json`.

    Rates and means are plain numbers with `_low` and `_high` beside them; tables of methods keep
    their `{method: {n: {value, low, high}}}`.
    """
    found: dict[str, Any] = {}
    for name, value in evaluation.items():
        if isinstance(value, Mapping) and "value" in value:
            found |= {
                name: value["value"],
                f"{name}_low": value["low"],
                f"{name}_high": value["high"],
            }
        elif isinstance(value, Mapping):
            found[name] = value
    return found
