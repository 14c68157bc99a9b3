"""The expected quality of the sample that a score would pick out of n, from a pool of N."""

import math

import numpy as np
from jaxtyping import Float

LEAST_POOL = 4
"""A pool should hold at least so many times the largest n: towards N a single sample decides."""


def best_of_n(
    scores: Float[np.ndarray, " sample"], quality: Float[np.ndarray, " sample"], *, n: int
) -> float:
    """Mean quality of the best-scored sample of a random subset of n of the N samples.

    Sort by score, ascending. The i-th sample (from 1) is the best of C(i-1, n-1) subsets, so

        BoN(n) = Σ_{i=n..N} C(i-1, n-1) / C(N, n) * quality_i

    Samples i..j with the same score share the C(j, n) - C(i-1, n) subsets that one of
    them wins: ties are split evenly, each sample of the block taking the block's mean
    quality. Exact and unbiased for every n <= N, and every n uses all N samples; its
    variance over pools grows towards n = N, where a single sample decides.

    From "WebGPT" (Nakano et al. 2021, https://arxiv.org/abs/2112.09332), appendix I, and
    equation 8 of "Reward Model Ensembles Help Mitigate Overoptimization" (Coste et al.
    2024, https://arxiv.org/abs/2310.02743); the treatment of ties is ours.

    With scores (1, 2, 3), quality (0, 1, 0), n = 2: of the three pairs, one is won by
    the sample scored 2 and two by the one scored 3, so 1/3. With scores (1, 2, 2) the
    upper two win all three pairs and share them: 1/2.

    Args:
        scores: what the selection is by; any monotone transform gives the same result.
        quality: what is expected, for example 1.0 where the answer is right.
        n: from 1 to N.

    Returns:
        The expectation; for n = 1 the plain mean of `quality`.
    """
    num_samples = len(scores)
    assert 1 <= n <= num_samples, (n, num_samples)
    assert np.isfinite(scores).all(), "scores must be finite"
    order = np.argsort(scores, kind="stable")
    sorted_scores, sorted_quality = scores[order], quality[order]
    starts = np.flatnonzero(np.diff(sorted_scores, prepend=-np.inf))
    ends = [*starts[1:].tolist(), num_samples]
    expected = 0.0
    for start, end in zip(starts.tolist(), ends, strict=True):
        won = math.comb(end, n) - math.comb(start, n)
        expected += won / math.comb(num_samples, n) * float(sorted_quality[start:end].mean())
    return expected
