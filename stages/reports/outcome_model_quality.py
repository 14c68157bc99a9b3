"""How good an outcome reward model is on completions that it has not seen."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics import calibration
from stages.algorithms.statistics.calibration import ReliabilityBin
from stages.algorithms.statistics.intervals import problem_numbers
from stages.algorithms.statistics.score_quality import auc
from stages.records.preferences import Outcome
from stages.reports.problem_interval import QualityConfig, calibration_error, over_problems


def measure(
    rows: Sequence[Outcome],
    scores: Float[np.ndarray, " completion"],
    config: QualityConfig,
    seed: int,
) -> dict[str, Any]:
    """AUC, accuracy, likelihood and calibration of P(right) = sigmoid(score), with intervals.

    All are means over problems of the mean over a problem's completions, and intervals are over
    problems; the calibration error is over completions, with problems drawn whole.

    The model learned P(right) where right and wrong are equally likely beforehand
    (`rewards/balanced_outcomes`), and is tested on completions as they come: all but the AUC
    also tell how far these are from half right.

    Args:
        rows: completions, as the policy samples them.
        scores: of each.
        config: bins and intervals.
        seed: of the resamples.

    Returns:
        `right_share`: of the completions. `auc`: within a problem, over the problems that have
        right and wrong completions, `problems_with_both`; null without any. `accuracy`: the
        likelier verdict is the true one, a probability of 1/2 counting half; beside it what
        one verdict for all would have, `one_verdict_accuracy`. `negative_log_likelihood` in nats.
        `expected_calibration_error`.

    Raises:
        ValueError: no completions, or scores that are not finite.
    """
    if not rows:
        raise ValueError("expected held-out completions, found none: give a pool of the split dev")
    if not np.isfinite(scores).all():
        raise ValueError(
            "expected finite scores, found some that are not: the outcome model diverged. Look "
            "at its loss, lower its learning rate and rerun."
        )
    problems = problem_numbers([row.id for row in rows])
    right = np.array([row.right for row in rows])
    scores, outcomes = scores.astype(np.float64), right.astype(np.float64)
    verdicts = 0.5 + 0.5 * np.sign(scores) * np.sign(outcomes - 0.5)
    likelihood = np.logaddexp(0.0, np.where(right, -scores, scores))
    of_problem = [
        auc(scores[problems == number], right[problems == number])
        for number in range(int(problems.max()) + 1)
    ]
    areas = np.array([one for one in of_problem if one is not None])
    right_share = over_problems(outcomes, problems, config, seed)
    share = 0.0 if right_share is None else right_share["value"]
    return {
        "completions": len(rows),
        "problems": len(of_problem),
        "problems_with_both": len(areas),
        "right_share": right_share,
        "auc": over_problems(areas, np.arange(len(areas)), config, seed),
        "accuracy": over_problems(verdicts, problems, config, seed),
        "one_verdict_accuracy": max(share, 1 - share),
        "negative_log_likelihood": over_problems(likelihood, problems, config, seed, is_rate=False),
        "expected_calibration_error": calibration_error(
            probability(scores), outcomes, problems, config, seed
        ),
    }


def reliability(
    rows: Sequence[Outcome], scores: Float[np.ndarray, " completion"], config: QualityConfig
) -> list[ReliabilityBin]:
    """How often answers are right, by the model's probability of it."""
    return calibration.reliability_bins(
        probability(scores),
        np.array([float(row.right) for row in rows]),
        num_bins=config.num_bins,
        binning=config.binned_by(),
    )


def probability(scores: Float[np.ndarray, " completion"]) -> Float[np.ndarray, " completion"]:
    """sigmoid(score), without overflow."""
    return np.exp(-np.logaddexp(0.0, -scores.astype(np.float64)))
