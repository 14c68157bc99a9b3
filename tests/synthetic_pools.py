"""Pools of sampled completions whose true accuracies are known, to count how often intervals hold.

Problems differ in difficulty, N samples of each are right with its probability. Of two methods
trained with several seeds, each seed adds something of its own to each method, on every problem.
The probabilities stay between 0 and 1 without being cut, so the true difference is exactly 0.
"""

import numpy as np

NUM_POOLS = 1000


def difficulties(stream, num_problems):
    """P(right) of each problem and pool, between 0.2 and 0.8; the true mean is 0.5."""
    return 0.2 + 0.6 * stream.beta(2.0, 2.0, (num_problems, NUM_POOLS))


def rates(stream, probabilities, num_samples):
    """The share of right samples."""
    return stream.binomial(num_samples, probabilities) / num_samples


def spread(stream, deviation, shape):
    """Even between -sqrt(3) and sqrt(3) deviations: nothing comes near the ends."""
    return stream.uniform(-1.0, 1.0, shape) * deviation * 3**0.5


def differences(seed, *, num_seeds, num_problems, seed_deviation, num_samples=8):
    """One method minus another, true mean 0: seed x problem x pool."""
    stream = np.random.default_rng(seed)
    shared = difficulties(stream, num_problems)
    each = [
        rates(
            stream,
            shared
            + spread(stream, 0.03, (num_problems, NUM_POOLS))
            + spread(stream, seed_deviation, (num_seeds, 1, NUM_POOLS)),
            num_samples,
        )
        for _ in range(2)
    ]
    return each[0] - each[1]


def coverage(low, high, truth):
    """The share of the intervals that hold the truth."""
    return float(np.mean((low <= truth) & (truth <= high)))
