"""The accuracy of a vote in which a sample counts by its score, from a pool of N."""

import numpy as np
from jaxtyping import Bool, Float, Int

UNREADABLE = -1
"""The answer of a sample from which none can be read."""


def weighted_vote(
    answers: Int[np.ndarray, " sample"],
    weights: Float[np.ndarray, " sample"],
    answer_is_right: Bool[np.ndarray, " answer"],
    *,
    subsets: Int[np.ndarray, "draw n"],
) -> float:
    """Share of the subsets in which the answer with the greatest sum of weights is right.

        vote(subset) = argmax_a  Σ_{i in subset, answer_i = a}  weight_i

    Answers with equal sums share the vote evenly; a sample without an answer takes one of the n
    draws and adds to none, and a subset without any answer is wrong. With equal weights this is
    the majority vote, which `majority_vote` computes exactly; for other weights there is no closed
    form, so `subsets` are random ones (see `subsets.nested`), or all of them where N is small.

    Weighted best-of-n: Li et al. 2023 (DiVeRSe, https://arxiv.org/abs/2206.02336); with
    process scores Wang et al. 2024 (Math-Shepherd, https://arxiv.org/abs/2312.08935). A monotone
    transform of the scores changes the result, and a negative weight would vote against: take
    probabilities.

    With answers (a, a, b), weights (0.2, 0.3, 0.6), a right, all three drawn: 0.5 < 0.6, so 0.

    Args:
        answers: of each sample, the number of its answer, or `UNREADABLE`.
        weights: of each sample, not negative.
        answer_is_right: for each number of an answer.
        subsets: rows of sample numbers, none twice in a row.

    Returns:
        The mean over the subsets.
    """
    assert (weights >= 0.0).all() and np.isfinite(weights).all(), "a weight is a number from 0 up"  # noqa: PT018
    if not len(answer_is_right):
        return 0.0
    votes = answers[:, None] == np.arange(len(answer_is_right))  # UNREADABLE equals none
    sums = (votes * weights[:, None])[subsets].sum(axis=1)
    present = votes[subsets].any(axis=1)
    sums = np.where(present, sums, -np.inf)
    top = sums.max(axis=1, keepdims=True)
    # Sums of the same weights in another order differ by rounding, and are a tie.
    winners = present & np.isclose(sums, top, rtol=1e-12, atol=0.0)
    num_winners = winners.sum(axis=1)
    right = (winners & answer_is_right).sum(axis=1)
    return float(
        np.divide(right, num_winners, where=num_winners > 0, out=np.zeros(len(top))).mean()
    )
