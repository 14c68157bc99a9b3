"""How well scores tell right from wrong, and what else they go by.

AUC, balanced accuracy and likelihood of a yes or no; rank correlation; and pairs by how much longer
their better completion is: does a score know more than lengths? A score that has learned "longer is
better" orders pairs rightly as long as the better one is longer, and only then. So accuracy is told
for each bucket of length differences, and for pairs of matched lengths, where length is no
evidence. Why: Singhal et al. 2023, "A Long Way to Go" (https://arxiv.org/abs/2310.03716): most of
what PPO gains in such a reward is length.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int


def auc(
    scores: Float[np.ndarray, " sample"], is_right: Bool[np.ndarray, " sample"]
) -> float | None:
    """Probability that a right completion is scored above a wrong one, a tie counting half.

        AUC = mean over (right i, wrong j) of  1[s_i > s_j] + 1/2 1[s_i = s_j]

    Of one problem only; average it over problems, never pool their scores. Best-of-n and a group's
    advantages compare nothing else. A pooled AUC also pays for telling easy problems, whose
    completions are mostly right, from hard ones: a score that is one number for each problem, and
    so of no use for choosing, can have a pooled AUC near 1, and has exactly 1/2 here.

    The statistic of Mann and Whitney 1947; as an area, Hanley and McNeil 1982. None where the
    problem has no right or no wrong completion.
    """
    right, wrong = scores[is_right], scores[~is_right]
    if not len(right) or not len(wrong):
        return None
    assert np.isfinite(scores).all(), "scores must be finite"
    ordered = np.sort(wrong)
    below = np.searchsorted(ordered, right, side="left")
    up_to = np.searchsorted(ordered, right, side="right")
    return float((below + up_to).sum() / (2 * len(right) * len(wrong)))


# A probability of 0 that came true would cost infinitely much; float32 rounds to it.
SMALLEST = 1e-7


def balanced_accuracy(
    scores: Float[np.ndarray, " sample"],
    is_right: Bool[np.ndarray, " sample"],
    *,
    threshold: float,
) -> float | None:
    """Mean of the accuracy on the right ones and on the wrong ones; right is score >= threshold.

    1/2 for one answer to everything, whatever the share of the right ones; None where one of the
    two does not occur.
    """
    if is_right.all() or not is_right.any():
        return None
    said = scores >= threshold
    return float((said[is_right].mean() + (~said[~is_right]).mean()) / 2)


def negative_log_likelihood(
    probabilities: Float[np.ndarray, " sample"], labels: Float[np.ndarray, " sample"]
) -> float:
    """Mean of - p log q - (1 - p) log (1 - q), with predictions q and labels p, also soft ones."""
    q = np.clip(probabilities, SMALLEST, 1 - SMALLEST)
    return float(-(labels * np.log(q) + (1 - labels) * np.log1p(-q)).mean())


def spearman(
    first: Float[np.ndarray, " sample"], second: Float[np.ndarray, " sample"]
) -> float | None:
    """Spearman's rank correlation: Pearson's correlation of the ranks, ties at their mean rank.

    From -1 to 1. Spearman 1904 (https://doi.org/10.2307/1412159).

    With (1, 2, 3, 4) and (1, 3, 2, 4): 1 - 6 (0 + 1 + 1 + 0) / (4 (16 - 1)) = 0.8. None where one
    of the two is constant, or there is one sample: ranks without spread say nothing.
    """
    a, b = (ranks - ranks.mean() for ranks in (_ranks(first), _ranks(second)))
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread > 0 else None


def _ranks(values: Float[np.ndarray, " sample"]) -> Float[np.ndarray, " sample"]:
    assert len(values), "no samples"
    assert np.isfinite(values).all(), "values must be finite"
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    # A block of c ties that ends at rank e has the ranks e - c + 1, ..., e.
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    return mean_ranks[places]


def length_buckets(
    differences: Int[np.ndarray, " pair"], edges: Sequence[int]
) -> dict[str, Bool[np.ndarray, " pair"]]:
    """Which pairs are in each bucket, named by its bounds, both of them within.

    With edges (-5, 0, 5): "<= -6", "-5 .. -1", "0 .. 4", ">= 5": an edge begins its bucket.
    Buckets without pairs are there, all False. Differences are tokens of the better completion
    minus tokens of the worse one.
    """
    assert list(edges) == sorted(set(edges)) and edges, edges  # noqa: PT018
    names = [
        f"<= {edges[0] - 1}",
        *(f"{low} .. {high - 1}" for low, high in itertools.pairwise(edges)),
        f">= {edges[-1]}",
    ]
    place = np.searchsorted(np.array(edges), differences, side="right")
    return {name: place == number for number, name in enumerate(names)}
