"""The probability that at least one of k samples is right, from a pool of N."""

import math


def pass_at_k(num_samples: int, num_correct: int, *, k: int) -> float:
    """Probability that a random subset of k of the N samples holds a right one.

        pass@k = 1 - C(N - c, k) / C(N, k)

    with N = `num_samples`, c = `num_correct`. Unbiased for every k <= N, unlike
    1 - (1 - c/N)^k. From "Evaluating Large Language Models Trained on Code"
    (Chen et al. 2021, https://arxiv.org/abs/2107.03374), equation 1.

    With N = 4, c = 1, k = 2: three of the six pairs hold the right sample, so 0.5.

    Args:
        num_samples: N.
        num_correct: c, from 0 to N.
        k: from 1 to N.

    Returns:
        The probability; 0 when c = 0, 1 when fewer than k samples are wrong.
    """
    assert 0 <= num_correct <= num_samples, (num_correct, num_samples)
    assert 1 <= k <= num_samples, (k, num_samples)
    # Whole numbers until the one division: exact to the last bit for any N.
    subsets = math.comb(num_samples, k)
    return (subsets - math.comb(num_samples - num_correct, k)) / subsets
