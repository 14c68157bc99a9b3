"""Quality of scores: discrimination of right and wrong, bias by length, calibration.

Discrimination: AUC, balanced accuracy, negative log-likelihood of binary labels.

Bias by length: a score that has learned "longer is better" orders a pair correctly only if the
better completion is the longer one. So `length_buckets` groups pairs by the difference of their
lengths, for an accuracy in each. Singhal et al. 2023, "A Long Way to Go"
(https://arxiv.org/abs/2310.03716), find that most of what PPO gains in such a reward is length.

Calibration: whether predictions of probability q come true with frequency q, by the expected
calibration error.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from stages.algorithms.statistics.intervals import Interval, percentiles, resamples

Samples = Float[np.ndarray, " sample"]
AreRight = Bool[np.ndarray, " sample"]
Numbers = Int[np.ndarray, " sample"]
Pairs = Float[np.ndarray, " pair"]


def auc(scores: Samples, is_right: AreRight) -> float | None:
    """Probability that a right completion has a higher score than a wrong one, a tie counting half.

        AUC = mean over (right i, wrong j) of  1[s_i > s_j] + 1/2 1[s_i = s_j]

    Compute it within one problem and average over problems; do not pool their scores. Best-of-n and
    a group's advantages only compare completions of one problem. A pooled AUC also rewards the
    distinction of easy problems, whose completions are mostly right, from hard ones: a score that
    is constant within each problem, and so useless for a choice, can have a pooled AUC near 1, but
    has exactly 1/2 here.

    The statistic of Mann and Whitney 1947; as an area, Hanley and McNeil 1982. None if the problem
    has no right or no wrong completion.
    """
    right, wrong = scores[is_right], scores[~is_right]
    if not len(right) or not len(wrong):
        return None
    assert np.isfinite(scores).all(), "scores must be finite"
    ordered = np.sort(wrong)
    below = np.searchsorted(ordered, right, side="left")
    up_to = np.searchsorted(ordered, right, side="right")
    return float((below + up_to).sum() / (2 * len(right) * len(wrong)))


# An event of probability 0, to which float32 may round, would have an infinite loss.
SMALLEST = 1e-7


def balanced_accuracy(scores: Samples, is_right: AreRight, *, threshold: float) -> float | None:
    """Mean of the accuracies on right and on wrong samples; predicted right: score >= threshold.

    A constant prediction has 1/2, whatever the share of right samples. None if either class is
    missing.
    """
    if is_right.all() or not is_right.any():
        return None
    predicted = scores >= threshold
    return float((predicted[is_right].mean() + (~predicted[~is_right]).mean()) / 2)


def negative_log_likelihood(probabilities: Samples, labels: Samples) -> float:
    """Mean of - p log q - (1 - p) log (1 - q), with predictions q and (also soft) labels p."""
    q = np.clip(probabilities, SMALLEST, 1 - SMALLEST)
    return float(-(labels * np.log(q) + (1 - labels) * np.log1p(-q)).mean())


def length_buckets(
    differences: Int[np.ndarray, " pair"], edges: Sequence[int]
) -> dict[str, Bool[np.ndarray, " pair"]]:
    """Membership of pairs in buckets, named by their inclusive bounds.

    With edges (-5, 0, 5): "<= -6", "-5 .. -1", "0 .. 4", ">= 5": an edge begins its bucket. Empty
    buckets are included, all False. Differences are tokens of the better completion minus tokens of
    the worse one.
    """
    assert list(edges) == sorted(set(edges)) and edges, edges  # noqa: PT018
    names = [
        f"<= {edges[0] - 1}",
        *(f"{low} .. {high - 1}" for low, high in itertools.pairwise(edges)),
        f">= {edges[-1]}",
    ]
    place = np.searchsorted(np.array(edges), differences, side="right")
    return {name: place == number for number, name in enumerate(names)}


def equal_mass(probabilities: Samples, num_bins: int) -> Numbers:
    """Bins of about equally many predictions: bin = floor(K rank / N), rank from 0.

    Equal predictions have the same rank, the lowest of theirs, and so the same bin: bins do not
    depend on the order of rows. With many equal predictions a bin may be empty. Nguyen and O'Connor
    2015 (https://arxiv.org/abs/1508.05154), section 3.
    """
    ranks = np.searchsorted(np.sort(probabilities), probabilities, side="left")
    return ranks * num_bins // max(1, len(probabilities))


def preferred_side(margins: Pairs, labels: Pairs) -> tuple[Pairs, Pairs]:
    """Confidence in the side that the model prefers, and the label's probability of that side.

        confidence = sigmoid(|margin|),  outcome = label where margin > 0, 1 - label where < 0

    with margin = r_1 - r_2 and label = P(the first is better). Pairs have the chosen side first, so
    sigmoid(margin) against the label would have outcome 1 in every bin, which shows only the order
    of the columns. The error here does not change when the completions of a pair are swapped: it
    equals counting each pair in both directions. A tie has confidence 1/2 and outcome 1/2.
    """
    confidence = 1.0 / (1.0 + np.exp(-np.abs(margins)))
    return confidence, 0.5 + np.sign(margins) * (labels - 0.5)


def expected_calibration_error(
    probabilities: Samples,
    outcomes: Samples,
    problems: Numbers,
    *,
    num_bins: int,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> Interval:
    """Mean distance between confidence and accuracy over the bins, with a bootstrap interval.

        ECE = Σ_b count_b / N |accuracy_b - confidence_b| = Σ_b |Σ_{i in b} (q_i - y_i)| / N

    Guo et al. 2017 (https://arxiv.org/abs/1706.04599), eq. 3. The bootstrap draws problems, each
    with all its predictions, into the bins of the full sample.

    A sum of absolute values is biased upwards: even a calibrated model has an error of the order
    sqrt(K / N), and resampling adds noise, so near 0 the interval may lie above the value. Compare
    models only with the same predictions and K.

    `probabilities` q in [0, 1]: predictions; `outcomes` y: 0, 1, or a soft label between.
    `problems` are numbers from 0; K is `num_bins`.
    """
    assert len(probabilities) > 0, "no predictions"
    bins = equal_mass(probabilities, num_bins)
    num_problems = int(problems.max()) + 1
    gaps = np.zeros((num_problems, num_bins))
    np.add.at(gaps, (problems, bins), probabilities - outcomes)
    counts = np.bincount(problems, minlength=num_problems).astype(np.float64)
    draws = resamples(num_problems, num_resamples, seed)
    errors = np.array([np.abs(times @ gaps).sum() / (times @ counts) for times in draws])
    value = np.abs(gaps.sum(axis=0)).sum() / len(probabilities)
    return Interval(float(value), *percentiles(errors, confidence).tolist())
