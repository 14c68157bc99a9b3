"""Expected accuracy of a vote among n samples of a pool of N: majority or weighted vote."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

Sizes = Int[np.ndarray, " answer"]
AreRight = Bool[np.ndarray, " answer"]

MAX_POOL = 1000
"""Largest pool: its numbers of subsets, up to 2^N, still fit a float."""


def majority_vote(
    class_sizes: Sizes, class_is_right: AreRight, *, num_unreadable: int, ns: Sequence[int]
) -> Float[np.ndarray, " n"]:
    """Probability that the most frequent answer of a random subset of n samples is right.

    The pool holds N samples: `class_sizes[a]` with answer a, and `num_unreadable` from
    which no answer can be read. A subset of n is drawn without replacement, so the counts
    in it are multivariate hypergeometric. The most frequent answer wins, tied answers win
    equally often, and a sample without an answer takes one of the n draws but never wins
    (a subset without any answer is wrong). For a right answer of size c,

        P(it wins) = Σ_{t=1..min(c,n)} C(c, t) / C(N, n) Σ_m W_t(n - t, m) / (1 + m)

    where W_t(d, m) counts the ways to draw d samples from the others so that no answer occurs more
    than t times and exactly m occur t times. W_t is a product over the other answers, computed by
    dynamic programming over (d, m). All terms are positive, so nothing cancels: the result is exact
    to rounding. Unbiased for every n <= N, and less noisy than the vote of a single subset.
    A ValueError for more than `MAX_POOL` samples, whose numbers of subsets overflow a float.

    The vote is self-consistency (Wang et al. 2023, https://arxiv.org/abs/2203.11171).

    With sizes (2 right, 1 wrong), none unreadable, n = 2: one of the three pairs holds
    both right samples and wins; the other two are ties: 1/3 + 2/3 * 1/2 = 2/3.
    """
    num_samples = int(class_sizes.sum()) + num_unreadable
    assert ns and min(ns) >= 1 and max(ns) <= num_samples, (ns, num_samples)  # noqa: PT018
    if num_samples > MAX_POOL:
        raise ValueError(f"a vote is among at most {MAX_POOL} samples, found {num_samples}")
    largest = max(ns)
    sizes = [int(size) for size in class_sizes]
    ways = np.zeros(largest + 1)
    for answer in [index for index, right in enumerate(class_is_right) if right]:
        other_sizes = sizes[:answer] + sizes[answer + 1 :]
        for top in range(1, min(sizes[answer], largest) + 1):
            other_ways = _ways_of_others(
                other_sizes, num_unreadable, top=top, largest=largest - top
            )
            ways[top:] += math.comb(sizes[answer], top) * other_ways
    return np.array([ways[n] / math.comb(num_samples, n) for n in ns])


def _ways_of_others(
    other_sizes: Sequence[int], num_unreadable: int, *, top: int, largest: int
) -> Float[np.ndarray, " drawn"]:
    """Σ_m W_top(d, m) / (1 + m) for every number d of other samples up to `largest`."""
    ways = np.zeros((largest + 1, largest // top + 1))
    ways[0, 0] = 1.0
    limits = [*((size, top - 1) for size in other_sizes), (num_unreadable, num_unreadable)]
    for size, limit in limits:
        before, ways = ways, np.zeros_like(ways)
        for number in range(min(size, limit, largest) + 1):
            ways[number:] += math.comb(size, number) * before[: largest + 1 - number]
        if limit < top <= min(size, largest):
            ways[top:, 1:] += math.comb(size, top) * before[: largest + 1 - top, :-1]
    return np.sum(ways / (1.0 + np.arange(ways.shape[1])), axis=1)


UNREADABLE = -1
"""Value in `answers` for a sample without a readable answer."""


def weighted_vote(
    answers: Int[np.ndarray, " sample"],
    weights: Float[np.ndarray, " sample"],
    answer_is_right: AreRight,
    *,
    subsets: Int[np.ndarray, "draw n"],
) -> float:
    """Share of the subsets in which the answer with the greatest sum of weights is right.

        vote(subset) = argmax_a  Σ_{i in subset, answer_i = a}  weight_i

    Answers with equal sums share the vote evenly; a sample without an answer takes one of the n
    draws and adds no weight, and a subset without any answer is wrong. With equal weights this is
    the majority vote, which `majority_vote` computes exactly; for other weights there is no closed
    form, so `subsets` are random ones (see `nested_subsets`), or all of them if N is small.

    Weighted best-of-n: Li et al. 2023 (DiVeRSe, https://arxiv.org/abs/2206.02336); with process
    scores Wang et al. 2024 (Math-Shepherd, https://arxiv.org/abs/2312.08935). A monotone transform
    of the scores changes the result, and a negative weight would vote against: take probabilities.

    With answers (a, a, b), weights (0.2, 0.3, 0.6), a right, all three drawn: 0.5 < 0.6, so 0.
    `answers`: indices in `answer_is_right`, or `UNREADABLE`.
    """
    assert (weights >= 0.0).all() and np.isfinite(weights).all(), "a weight is a number from 0 up"  # noqa: PT018
    if not len(answer_is_right):
        return 0.0
    if len(answer_is_right) == 1 and (answers != UNREADABLE).all():
        return float(answer_is_right[0])  # of most problems that a trained policy solves
    votes = answers[:, None] == np.arange(len(answer_is_right))  # UNREADABLE equals none
    present = votes[subsets].any(axis=1)
    sums = (votes * weights[:, None])[subsets].sum(axis=1)
    top = sums.max(axis=1, keepdims=True)
    # Sums of the same weights in another order differ by rounding, and are a tie.
    winners = present & (sums >= top * (1.0 - 1e-12))
    num_winners = winners.sum(axis=1)
    right = (winners & answer_is_right).sum(axis=1)
    return float((right / np.maximum(num_winners, 1)).mean())


def nested_subsets(
    num_samples: int, *, num_draws: int, seed: int
) -> Int[np.ndarray, "draw sample"]:
    """`num_draws` random orders of the samples 0 .. N-1.

    The first n of an order are a random subset of n, drawn without replacement, and part of its
    subset of any larger n. Methods that see the same orders are compared on the same subsets
    (common random numbers), so the noise of the draws cancels in their difference. The standard
    error of a mean over subsets shrinks with the square root of `num_draws`.
    """
    orders = np.tile(np.arange(num_samples), (num_draws, 1))
    return np.random.default_rng(seed).permuted(orders, axis=1)
