"""What the different ones of n samples cost, expected over the subsets of a pool of N."""

import math
from collections.abc import Sequence


def distinct_cost(counts: Sequence[int], costs: Sequence[float], *, n: int) -> float:
    """Expected sum of the costs of the different values in a random subset of n of the N samples.

        Σ_v cost_v (1 - C(N - count_v, n) / C(N, n))

    with N = Σ_v count_v: a value costs once, however often it was drawn. For scoring a pool whose
    equal completions are read once. With equal costs of 1 it is the expected number of different
    values (rarefaction: Hurlbert 1971, "The Nonconcept of Species Diversity").

    With counts (2, 1), costs (10, 7), n = 2: the three pairs hold 10, 17 and 17, so 44/3.

    Args:
        counts: how many samples have each value.
        costs: of each value.
        n: from 1 to N.
    """
    num_samples = sum(counts)
    assert 1 <= n <= num_samples, (n, num_samples)
    subsets = math.comb(num_samples, n)
    return sum(
        cost * ((subsets - math.comb(num_samples - count, n)) / subsets)
        for count, cost in zip(counts, costs, strict=True)
    )
