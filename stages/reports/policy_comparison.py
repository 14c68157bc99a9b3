"""Paired differences between two policies on the same problems."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stages.algorithms.statistics.bootstrap import mean_intervals
from stages.records.problem_result import ProblemResult
from stages.reports.rounding import rounded


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
    """
    baseline, *others = evaluations
    versus_baseline = {
        policy: differences(
            results[policy],
            results[baseline],
            n=max(evaluations[baseline]["best_of"], key=int),
            num_resamples=num_resamples,
            confidence=confidence,
            seed=seed,
        )
        for policy in others
    }
    return {
        "baseline": baseline,
        "num_problems": evaluations[baseline]["num_problems"],
        "num_samples": evaluations[baseline]["num_samples"],
        "confidence": confidence,
        "policies": {
            policy: {"stage": made_by[policy].replace("/", "@")}
            | entry(evaluation, versus_baseline.get(policy))
            for policy, evaluation in evaluations.items()
        },
    }


def differences(
    results: Sequence[ProblemResult],
    reference: Sequence[ProblemResult],
    *,
    n: str,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, dict[str, float]]:
    """`{quantity: {difference, low, high}}`: `results` minus `reference`, paired by problem.

    Args:
        results: of the one policy.
        reference: of the other.
        n: the number of samples at which best-of-n and majority@n are compared.
        num_resamples: of the problems.
        confidence: coverage of the intervals.
        seed: of the resamples.

    Raises:
        ValueError: the two are of different problems.
    """
    if [row.id for row in results] != [row.id for row in reference]:
        raise ValueError(
            f"Expected results on the same problems in the same order, found {len(results)} and "
            f"{len(reference)} that differ. They come from different runs: rerun `dvc repro`."
        )
    pairs = list(zip(results, reference, strict=True))
    columns = {
        "mean_accuracy": [one.mean_accuracy - other.mean_accuracy for one, other in pairs],
        "greedy_accuracy": [one.greedy_correct - other.greedy_correct for one, other in pairs],
        "majority_at": [one.majority_at[n] - other.majority_at[n] for one, other in pairs],
        "best_of": [one.best_of[n] - other.best_of[n] for one, other in pairs],
        "pass_at": [one.pass_at[n] - other.pass_at[n] for one, other in pairs],
        "mean_tokens": [one.mean_tokens - other.mean_tokens for one, other in pairs],
    }
    found = mean_intervals(
        np.array(list(columns.values()), dtype=np.float64).T,
        num_resamples=num_resamples,
        confidence=confidence,
        seed=seed,
    )
    return {
        name: dict(zip(("difference", "low", "high"), rounded(interval), strict=True))
        for name, *interval in zip(columns, *found, strict=True)
    }


def entry(
    evaluation: Mapping[str, Any], versus_baseline: Mapping[str, Mapping[str, float]] | None
) -> dict[str, Any]:
    """One policy in `data/compare_policies/metrics.json`.

    Rates and means are plain numbers with `_low` and `_high` beside them; curves over n keep
    their `{n: {value, low, high}}`. `versus_baseline` is the difference of mean accuracy, and
    `versus_baseline_<quantity>` that of the others.
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
    for name, difference in (versus_baseline or {}).items():
        suffix = "" if name == "mean_accuracy" else f"_{name}"
        found[f"versus_baseline{suffix}"] = difference
    return found
