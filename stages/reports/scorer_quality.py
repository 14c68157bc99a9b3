"""How well scores choose among a policy's completions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.algorithms.selection.best_of_n import best_of_n
from stages.algorithms.statistics.auc import auc
from stages.records.verdicts import Verdicts
from stages.reports.problem_interval import QualityConfig, over_problems


def measure(
    verdicts: Sequence[Verdicts],
    scores: Sequence[Sequence[float]],
    config: QualityConfig,
    seed: int,
) -> dict[str, Any]:
    """AUC within a problem and best-of-n, against one random sample and the majority vote.

    n is N, the size of the pool, the largest for which best-of-n is known without bias: one
    choice a problem. Differences are paired by problem, and all intervals draw the same
    problems.

    Args:
        verdicts: of each problem.
        scores: of each problem's completions.
        config: intervals.
        seed: of the resamples.

    Returns:
        `auc`, over the `problems_with_both` right and wrong completions (null without any);
        `best_of`, `best_of_minus_mean`, `best_of_minus_majority`: accuracies.
    """
    pairs = [
        (np.array(row, dtype=np.float64), np.array(one.right))
        for one, row in zip(verdicts, scores, strict=True)
    ]
    areas = [auc(row, right) for row, right in pairs]
    both = np.array([area for area in areas if area is not None])
    chosen = np.array(
        [best_of_n(row, right.astype(np.float64), n=len(row)) for row, right in pairs]
    )
    mean = np.array([right.mean() for _, right in pairs])
    majority = np.array([one.majority for one in verdicts])
    all_problems = np.arange(len(verdicts))
    return {
        "auc": over_problems(both, np.arange(len(both)), config, seed),
        "problems_with_both": len(both),
        "best_of": over_problems(chosen, all_problems, config, seed),
        "best_of_minus_mean": over_problems(
            chosen - mean, all_problems, config, seed, is_rate=False
        ),
        "best_of_minus_majority": over_problems(
            chosen - majority, all_problems, config, seed, is_rate=False
        ),
    }


def baselines(verdicts: Sequence[Verdicts], config: QualityConfig, seed: int) -> dict[str, Any]:
    """What needs no scores: one random sample, and the majority vote over all of them."""
    all_problems = np.arange(len(verdicts))
    mean = np.array([np.mean(one.right) for one in verdicts])
    majority = np.array([one.majority for one in verdicts])
    return {
        "num_problems": len(verdicts),
        "num_samples": len(verdicts[0].right),
        "mean": over_problems(mean, all_problems, config, seed),
        "majority": over_problems(majority, all_problems, config, seed),
    }
