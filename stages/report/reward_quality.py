"""Quality of a reward model on held-out pairs, and of an outcome model on held-out completions.

Rows of one problem are not independent: they are averaged first, and intervals are over problems.
The calibration error is over rows; its bootstrap resamples whole problems.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from stages.algorithms.statistics import intervals, score_quality
from stages.algorithms.statistics.intervals import problem_numbers
from stages.records.metrics import with_interval
from stages.records.preferences import Outcome, Preference
from stages.report.evaluation_config import QualityConfig

logger = logging.getLogger(__name__)
Interval = dict[str, float]
"""Estimate `{value, low, high}`."""


def evaluate_pairs(
    pairs: Sequence[Preference], scores: Float[np.ndarray, "pair 2"], config: QualityConfig,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Accuracy, likelihood, calibration and the effect of length, with intervals.

    The held-out pairs' labels may be soft; a pair's scores are those of the chosen (first) and the
    rejected completion.

    `accuracy`: the model prefers the side that the label prefers, a tie counts half; pairs whose
    label is 1/2 have no such side, and are `undecided_pairs`. `tie_rate`: equal scores.
    `negative_log_likelihood`: of the label under sigmoid(r_1 - r_2), in nats; a coin's is 0.693.
    `label_entropy`: its minimum, 0 for hard labels. `expected_calibration_error`: for the side that
    the model prefers. `length_matched_accuracy` and `accuracy_by_length_difference` (tokens of the
    better completion minus tokens of the other): `accuracy` on those pairs; null if there are none.
    """
    if not pairs:
        logger.warning("no held-out pairs test this model; more: data.shares.dev, sampling.heldout")
        return {"pairs": 0}
    problems = problem_numbers([pair.id for pair in pairs])
    labels = np.array([pair.probability for pair in pairs])
    margins = np.subtract(*_check_finite(scores, "reward").T)
    right = 0.5 + 0.5 * np.sign(margins) * np.sign(labels - 0.5)
    decided = labels != 0.5
    better = np.where(labels >= 0.5, 1, -1)
    longer = np.array([len(pair.chosen_ids) - len(pair.rejected_ids) for pair in pairs]) * better
    mean = partial(average_over_problems, problems=problems, config=config, seed=seed)

    def accuracy(among: Bool[np.ndarray, " pair"]) -> dict[str, Any] | None:
        selected = among & decided
        estimate = average_over_problems(right[selected], problems[selected], config, seed)
        return estimate and estimate | {"pairs": int(selected.sum())}

    likelihood = labels * np.logaddexp(0.0, -margins) + (1 - labels) * np.logaddexp(0.0, margins)
    sides = np.stack([labels, 1 - labels])
    entropy = -(sides * np.log(np.where(sides > 0, sides, 1.0))).sum(axis=0)
    buckets = score_quality.length_buckets(longer, config.length_edges)
    return {
        "pairs": len(pairs),
        "problems": int(problems.max()) + 1,
        "undecided_pairs": int((~decided).sum()),
        "accuracy": average_over_problems(right[decided], problems[decided], config, seed),
        "tie_rate": mean((margins == 0.0).astype(np.float64)),
        "negative_log_likelihood": mean(likelihood, is_rate=False),
        "label_entropy": mean(entropy, is_rate=False),
        "expected_calibration_error": _estimate_calibration_error(
            score_quality.preferred_side(margins, labels), problems, config, seed
        ),
        "length_matched_accuracy": accuracy(np.abs(longer) <= config.length_tolerance),
        "accuracy_by_length_difference": {
            name: accuracy(inside) for name, inside in buckets.items()
        },
    }


def evaluate_outcomes(
    rows: Sequence[Outcome], scores: Float[np.ndarray, " completion"], config: QualityConfig,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """AUC, accuracy, likelihood and calibration of P(right) = sigmoid(score), with intervals.

    The model learned P(right) for a prior of 1/2 (`rewards/verifier_labels`), and is tested on
    completions as the policy samples them. So all numbers except the AUC also depend on how far the
    share of right completions is from 1/2.

    `right_share`: share of right completions. `auc`: within a problem, mean over the problems that
    have right and wrong completions, `problems_with_both`; null if there are none. `accuracy`: the
    likelier verdict is the true one, a probability of 1/2 counts half. `one_verdict_accuracy`: the
    accuracy of the best constant verdict. `negative_log_likelihood`: in nats.
    """
    if not rows:
        raise ValueError("expected held-out completions, found none: give a pool of the split dev")
    scores = _check_finite(scores, "outcome")
    problems = problem_numbers([row.id for row in rows])
    right = np.array([row.right for row in rows])
    outcomes = right.astype(np.float64)
    of_problem = [
        score_quality.auc(scores[problems == number], right[problems == number])
        for number in range(int(problems.max()) + 1)
    ]
    areas = np.array([area for area in of_problem if area is not None])
    mean = partial(average_over_problems, problems=problems, config=config, seed=seed)
    right_share = mean(outcomes)
    assert right_share is not None
    likelihood = np.logaddexp(0.0, np.where(right, -scores, scores))
    return {
        "completions": len(rows),
        "problems": len(of_problem),
        "problems_with_both": len(areas),
        "right_share": right_share,
        "auc": average_over_problems(areas, np.arange(len(areas)), config, seed),
        "accuracy": mean(0.5 + 0.5 * np.sign(scores) * np.sign(outcomes - 0.5)),
        "one_verdict_accuracy": max(right_share["value"], 1 - right_share["value"]),
        "negative_log_likelihood": mean(likelihood, is_rate=False),
        "expected_calibration_error": _estimate_calibration_error(
            (np.exp(-np.logaddexp(0.0, -scores)), outcomes), problems, config, seed
        ),
    }


def _check_finite(scores: np.ndarray, model: str) -> Float[np.ndarray, "..."]:
    if not np.isfinite(scores).all():
        raise ValueError(
            f"expected finite scores, found some that are not: the {model} model diverged. Look at "
            f"its loss, lower its learning rate and rerun."
        )
    return scores.astype(np.float64)


def average_over_problems(
    values: Float[np.ndarray, " row"], problems: Int[np.ndarray, " row"], config: QualityConfig,
    seed: int, *, is_rate: bool = True,
) -> Interval | None:  # fmt: skip
    """Mean over problems of each problem's mean over its rows; None without rows."""
    if not len(values):
        return None
    return with_interval(
        *intervals.mean_over_problems(
            values, problems, "rate" if is_rate else "number",
            num_resamples=config.num_bootstrap, confidence=config.confidence, seed=seed,
        )
    )  # fmt: skip


def _estimate_calibration_error(
    predictions: tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]],
    problems: Int[np.ndarray, " row"], config: QualityConfig, seed: int,
) -> Interval:  # fmt: skip
    """Expected calibration error of probabilities against outcomes."""
    estimate = score_quality.expected_calibration_error(
        *predictions, problems, num_bins=config.num_bins, num_resamples=config.num_bootstrap,
        confidence=config.confidence, seed=seed,
    )  # fmt: skip
    return with_interval(*estimate)
