"""How well everything that can choose among a policy's completions does so."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics.score_quality import auc
from stages.reports.problem_interval import QualityConfig, over_problems
from stages.rewards.pool_scores import PoolScores

Metrics = Mapping[str, Any]


def measure(
    right: Sequence[Sequence[bool]],
    scores: Sequence[Mapping[str, PoolScores]],
    evaluation: Metrics,
    config: QualityConfig,
    seed: int,
) -> dict[str, Any]:
    """Each scorer of one pool: AUC within a problem, best-of-n and weighted vote.

    Args:
        right: of each problem, whether each completion is.
        scores: of each problem, each scorer's view of its completions.
        evaluation: the policy's metrics of evaluate_policy; n is the largest there.
        config: intervals of the AUC.
        seed: of the resamples.

    Returns:
        `mean` and `majority`, what needs no scores, and `scorers`: the AUC over the
        `problems_with_both` right and wrong completions (null without any), `auc_in_format` over
        completions in the format alone, where a look at the format tells nothing, and accuracies
        `best_of` and `weighted` (null of scorers without weights), with their differences from
        one sample and from the majority of as many, paired by problem.
    """
    at = evaluation["accuracy_at"]
    n = max(at["majority"], key=int)
    minus_mean, minus_majority = evaluation["minus_mean"], evaluation["minus_majority"]
    scorers = {}
    for name in scores[0]:
        pairs = [
            (of_problem[name].values, np.array(verdicts), of_problem["format"].values > 0)
            for of_problem, verdicts in zip(scores, right, strict=True)
        ]
        both = present(auc(values, verdicts) for values, verdicts, _ in pairs)
        alike = present(auc(values[kept], verdicts[kept]) for values, verdicts, kept in pairs)
        best_of, weighted = f"best_of/{name}", f"weighted/{name}"
        scorers[name] = {
            "auc": over_problems(both, np.arange(len(both)), config, seed),
            "problems_with_both": len(both),
            "auc_in_format": over_problems(alike, np.arange(len(alike)), config, seed),
            "best_of": at[best_of][n],
            "best_of_minus_mean": minus_mean[best_of][n],
            "best_of_minus_majority": minus_majority[best_of][n],
            "weighted": at[weighted][n] if weighted in at else None,
            "weighted_minus_majority": minus_majority[weighted][n] if weighted in at else None,
        }
    return {
        "num_problems": evaluation["num_problems"],
        "num_samples": evaluation["num_samples"],
        "n": int(n),
        "mean": evaluation["mean_accuracy"],
        "majority": at["majority"][n],
        "scorers": scorers,
    }


def present(areas: Iterable[float | None]) -> Float[np.ndarray, " problem"]:
    """The areas of the problems that have one."""
    return np.array([area for area in areas if area is not None])
