"""Estimates from a pool of N samples: best-of-n, pass@k, KL distance and cost.

Best-of-n is a distribution over completions, though no model represents it. Best-of-n and trained
policies are compared by their divergence from the policy, KL(best-of-n || policy) in nats: Gao et
al., "Scaling Laws for Reward Model Overoptimization" (2023), https://arxiv.org/abs/2210.10760.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float


def pass_at_k(num_samples: int, num_correct: int, *, k: int) -> float:
    """Probability that a random subset of k of the N samples has a right one.

        pass@k = 1 - C(N - c, k) / C(N, k)

    with N = `num_samples`, c = `num_correct`. Unbiased for every k <= N, unlike
    1 - (1 - c/N)^k. From "Evaluating Large Language Models Trained on Code"
    (Chen et al. 2021, https://arxiv.org/abs/2107.03374), equation 1.

    With N = 4, c = 1, k = 2: three of the six pairs have the right sample, so 0.5.
    """
    assert 0 <= num_correct <= num_samples, (num_correct, num_samples)
    assert 1 <= k <= num_samples, (k, num_samples)
    # Integers until the only division: exact to the last bit for any N.
    subsets = math.comb(num_samples, k)
    return (subsets - math.comb(num_samples - num_correct, k)) / subsets


MIN_POOL_RATIO = 4
"""Smallest N / n for a pool of N samples: towards n = N a single sample decides."""
Samples = Float[np.ndarray, " sample"]


def best_of_n(scores: Samples, quality: Samples, *, n: int) -> float:
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

    With scores (1, 2, 3), quality (0, 1, 0), n = 2: of the three pairs, one is won by the sample
    scored 2 and two by the one scored 3, so 1/3. With scores (1, 2, 2) the upper two win all three
    pairs and share them: 1/2. A monotone transform of the scores changes nothing.
    """
    num_samples = len(scores)
    assert 1 <= n <= num_samples, (n, num_samples)
    assert np.isfinite(scores).all(), "scores must be finite"
    if (quality == quality[0]).all():
        return float(quality[0])  # a sum of shares of it would round
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf)).tolist()
    # C(0, n) .. C(N, n), as integers
    counts = itertools.accumulate(
        range(n + 1, num_samples + 1), lambda c, i: c * i // (i - n), initial=1
    )
    subsets = [0] * n + list(counts)
    expected = 0.0
    for start, end in itertools.pairwise([*starts, num_samples]):
        num_won = subsets[end] - subsets[start]
        expected += num_won / subsets[-1] * float(quality[order[start:end]].mean())
    return expected


def kl_bound(n: int) -> float:
    """log n - (n - 1)/n: an upper bound of KL(best-of-n || policy).

    Equality holds if no two draws tie; if completions repeat or share a score, the KL is smaller.
    Beirami et al., "Theoretical guarantees on the best-of-n alignment policy" (2024),
    https://arxiv.org/abs/2401.01879, show that the bound is often far too large, although it is
    commonly used as the divergence.
    """
    assert n >= 1, n
    return math.log(n) - (n - 1) / n


def kl_plug_in(scores: Samples, *, n: int) -> float:
    """KL(best-of-n || policy) of one problem, with the pool in place of the policy.

        sum over scores s of q(s) log(q(s) / p(s))
        p(s) = F(s) - F(below s),    q(s) = F(s)^n - F(below s)^n

    F(s) is the share of samples with a score of at most s; p is the probability that one draw has
    score s, q that the best of n draws with replacement has it. `scores` are those of a pool of N
    completions, repeated ones included; n may be larger than N. Completions with the same score
    share its q as they share its p, since ties are broken at random. So the sum over completions is
    this sum over scores: best-of-n changes nothing among completions that the scorer ranks equally.

    With replacement, since only then is q the best of n draws *from p*: the KL is below the bound
    for every n, and below log N. The weights of best-of-n without replacement, unbiased for a
    reward, would at n = N give log N, although the bound is log N - (N - 1)/N.

    Biased downwards, little if N is at least 4 n, as rewards need it too: N = 16 samples that
    all differ give 0.003 less than the bound at n = 4, and 0.04 less at n = 16; over pools of 16
    from ten completions of unequal shares the mean is 3 to 5 % too low.

    With scores (1, 2) and n = 2: q = (1/4, 3/4), so (1/4) log(1/2) + (3/4) log(3/2) = 0.131.
    """
    assert n >= 1, n
    assert len(scores), "an empty pool"
    assert np.isfinite(scores).all(), "scores must be finite"
    _, counts = np.unique(scores, return_counts=True)
    p = counts / len(scores)
    q = np.diff((np.cumsum(counts) / len(scores)) ** n, prepend=0.0)
    seen = q > 0.0  # F^n may be too small for a float
    return max(0.0, float((q[seen] * np.log(q[seen] / p[seen])).sum()))


def distinct_cost(counts: Sequence[int], costs: Sequence[float], *, n: int) -> float:
    """Expected total cost of the distinct values in a random subset of n of the N samples.

        Σ_v cost_v (1 - C(N - count_v, n) / C(N, n))

    with N = Σ_v count_v: a value costs once, however often it was drawn, as in scoring a pool whose
    equal completions are scored once. With costs of 1 it is the expected number of distinct values
    (rarefaction: Hurlbert 1971, "The Nonconcept of Species Diversity").

    With counts (2, 1), costs (10, 7), n = 2: the three pairs cost 10, 17 and 17, so 44/3.
    """
    num_samples = sum(counts)
    assert 1 <= n <= num_samples, (n, num_samples)
    subsets = math.comb(num_samples, n)
    return sum(
        cost * ((subsets - math.comb(num_samples - count, n)) / subsets)
        for count, cost in zip(counts, costs, strict=True)
    )
