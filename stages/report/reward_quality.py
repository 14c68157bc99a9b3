"""How good a reward model is on held-out pairs, and an outcome model on held-out completions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from stages.algorithms.statistics import calibration, score_quality
from stages.algorithms.statistics.intervals import problem_numbers
from stages.records.preferences import Outcome, Preference
from stages.report.problem_interval import (
    Interval,
    QualityConfig,
    calibration_error,
    over_problems,
)


def of_pairs(
    pairs: Sequence[Preference],
    scores: Float[np.ndarray, "pair 2"],
    config: QualityConfig,
    seed: int,
) -> dict[str, Any]:
    """Accuracy, likelihood, calibration and what lengths have to do with it, with intervals.

    Pairs of one problem share completions and are no independent evidence: they are averaged
    first, and intervals are over problems; the calibration error is over pairs, with problems
    drawn whole.

    Args:
        pairs: held out; their labels may be soft.
        scores: of the chosen (first) and the rejected completion of each.
        config: bins, lengths and intervals.
        seed: of the resamples.

    Returns:
        `accuracy`: the model prefers the side that the label prefers, a tie counting half;
        pairs whose label is 1/2 have no such side, and are `undecided_pairs`. `tie_rate`: equal
        scores. `negative_log_likelihood`: of the label under sigmoid(r_1 - r_2), in nats, and
        `label_entropy`: the least that it can be, 0 for hard labels; a coin's is 0.693.
        `expected_calibration_error`: in the side that the model prefers.
        `length_matched_accuracy` and `accuracy_by_length_difference` (tokens of the better
        completion minus tokens of the other): `accuracy` on those pairs; null where there are
        none.

    Raises:
        ValueError: no pairs.
    """
    if not pairs:
        raise ValueError(
            "expected held-out pairs, found none: a reward model that is tested on nothing says "
            "nothing. Sample more completions of the split `dev`, or give heldout.jsonl rows."
        )
    problems = problem_numbers([pair.id for pair in pairs])
    labels = np.array([pair.probability for pair in pairs])
    margins = _margins(scores)
    right = 0.5 + 0.5 * np.sign(margins) * np.sign(labels - 0.5)
    decided = labels != 0.5
    longer = _longer(pairs)

    def accuracy(among: np.ndarray) -> Interval | None:
        kept = among & decided
        return over_problems(right[kept], problems[kept], config, seed)

    buckets = score_quality.length_buckets(longer, config.length_edges)
    likelihood, entropy = _cross_entropy(margins, labels), _entropy(labels)
    return {
        "pairs": len(pairs),
        "problems": int(problems.max()) + 1,
        "undecided_pairs": int((~decided).sum()),
        "accuracy": accuracy(decided),
        "tie_rate": over_problems((margins == 0.0).astype(np.float64), problems, config, seed),
        "negative_log_likelihood": over_problems(likelihood, problems, config, seed, is_rate=False),
        "label_entropy": over_problems(entropy, problems, config, seed, is_rate=False),
        "expected_calibration_error": calibration_error(
            *calibration.preferred_side(margins, labels), problems, config, seed
        ),
        "length_matched_accuracy": _counted(
            accuracy,
            score_quality.matched_lengths(longer, tolerance=config.length_tolerance) & decided,
        ),
        "accuracy_by_length_difference": {
            name: _counted(accuracy, inside & decided) for name, inside in buckets.items()
        },
    }


def of_outcomes(
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
        score_quality.auc(scores[problems == number], right[problems == number])
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
            _probability(scores), outcomes, problems, config, seed
        ),
    }


def _margins(scores: Float[np.ndarray, "pair 2"]) -> Float[np.ndarray, " pair"]:
    found = scores.astype(np.float64)
    if not np.isfinite(found).all():
        raise ValueError(
            "expected finite scores, found some that are not: the reward model diverged. Look at "
            "its loss, lower its learning rate and rerun."
        )
    return found[:, 0] - found[:, 1]


def _longer(pairs: Sequence[Preference]) -> Int[np.ndarray, " pair"]:
    """Tokens of the completion that the label prefers minus tokens of the other."""
    return np.array(
        [
            (len(pair.chosen_ids) - len(pair.rejected_ids)) * (1 if pair.probability >= 0.5 else -1)
            for pair in pairs
        ],
        dtype=np.int64,
    )


def _cross_entropy(
    margins: Float[np.ndarray, " pair"], labels: Float[np.ndarray, " pair"]
) -> Float[np.ndarray, " pair"]:
    """What `losses/reward_and_value_losses` is, in float64 and without overflow."""
    return labels * np.logaddexp(0.0, -margins) + (1 - labels) * np.logaddexp(0.0, margins)


def _entropy(labels: Float[np.ndarray, " pair"]) -> Float[np.ndarray, " pair"]:
    """-p log p - (1 - p) log (1 - p), which is 0 at p = 0 and 1."""
    sides = np.stack([labels, 1 - labels])
    return -(sides * np.log(np.where(sides > 0, sides, 1.0))).sum(axis=0)


def _counted(accuracy: Any, among: np.ndarray) -> dict[str, Any] | None:
    """The accuracy on some pairs, with how many they are."""
    found = accuracy(among)
    return None if found is None else found | {"pairs": int(among.sum())}


def _probability(scores: Float[np.ndarray, " completion"]) -> Float[np.ndarray, " completion"]:
    """sigmoid(score), without overflow."""
    return np.exp(-np.logaddexp(0.0, -scores.astype(np.float64)))
