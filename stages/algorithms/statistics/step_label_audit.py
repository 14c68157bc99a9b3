"""What Monte Carlo step labels would say with fewer completions, exactly.

Labels are made of K completions of a prefix, of which c reach the right answer. Any k of the
K are k completions too, so what k would have said is known from c alone, without chance: the
average over all subsets of size k.
"""

import math
from collections.abc import Sequence
from fractions import Fraction


def min_right(threshold: float, num_completions: int) -> int:
    """The fewest right completions whose share is at least `threshold`; of threshold 0, one.

    A label says "right" from so many on. Threshold 0 is Math-Shepherd's hard estimation, "any
    completion reaches the answer" (Wang et al. 2024, eq. 3, https://arxiv.org/abs/2312.08935);
    any other cuts the soft estimation (eq. 4).

    With threshold 0.5 and 5 completions: 3.
    """
    assert 0.0 <= threshold <= 1.0, threshold
    # As it is written: the binary 0.1 times 10 would be more than 1.
    return max(1, math.ceil(Fraction(repr(threshold)) * num_completions))


def wrong_probability(
    num_right: int, num_completions: int, *, subset_size: int, needed: int
) -> float:
    """P(the label says "wrong") with `subset_size` of the completions.

        P(X < needed),   X hypergeometric: P(X = x) = C(c, x) C(K - c, k - x) / C(K, k)

    The expectation over all subsets, without bias for what fresh completions would say, as
    pass@k is (Chen et al. 2021, eq. 1, https://arxiv.org/abs/2107.03374), which is 1 minus
    this for `needed` 1.

    With c = 1 right of K = 4, k = 2 of them, `needed` 1: C(3, 2) / C(4, 2) = 3/6 = 0.5.

    Args:
        num_right: c, completions that reach the right answer.
        num_completions: K, completions drawn.
        subset_size: k, how many of them are used, from 1 to K.
        needed: right completions from which on the label says "right", at least 1.
    """
    assert 0 <= num_right <= num_completions, (num_right, num_completions)
    assert 1 <= subset_size <= num_completions, (subset_size, num_completions)
    assert needed >= 1, needed
    fewer = sum(
        math.comb(num_right, x) * math.comb(num_completions - num_right, subset_size - x)
        for x in range(min(needed, subset_size + 1))
    )
    return fewer / math.comb(num_completions, subset_size)


def first_error_probability(wrong: Sequence[float], first: int) -> float:
    """P(the first step labelled "wrong" is step `first`); -1: none is.

        wrong[first] prod_{i < first} (1 - wrong[i]),   or prod_i (1 - wrong[i])

    The labels of one solution come from completions of different prefixes, so they are
    independent.

    With wrong = [0.5, 0.2]: 0.5 for 0, 0.5 times 0.2 = 0.1 for 1, 0.4 for -1.

    Args:
        wrong: of each step, the probability that its label says "wrong".
        first: a step from 0, or -1.
    """
    assert -1 <= first < len(wrong), (first, len(wrong))
    before = wrong if first == -1 else wrong[:first]
    return math.prod(1.0 - one for one in before) * (1.0 if first == -1 else wrong[first])
