"""How good a reward model is on pairs that it has not seen."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from stages.algorithms.statistics import calibration, score_quality
from stages.algorithms.statistics.calibration import ReliabilityBin
from stages.algorithms.statistics.intervals import problem_numbers
from stages.records.preferences import Preference
from stages.reports.problem_interval import (
    Interval,
    QualityConfig,
    calibration_error,
    over_problems,
)


def measure(
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


def reliability(
    pairs: Sequence[Preference], scores: Float[np.ndarray, "pair 2"], config: QualityConfig
) -> list[ReliabilityBin]:
    """How often the preferred completion is the better one, by the model's confidence in it."""
    labels = np.array([pair.probability for pair in pairs])
    return calibration.reliability_bins(
        *calibration.preferred_side(_margins(scores), labels),
        num_bins=config.num_bins,
        binning=config.binned_by(),
    )


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
