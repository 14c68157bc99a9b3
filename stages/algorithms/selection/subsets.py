"""Random subsets of a pool, the same for every method that is compared on it."""

import numpy as np
from jaxtyping import Int


def nested(num_samples: int, *, num_draws: int, seed: int) -> Int[np.ndarray, "draw sample"]:
    """`num_draws` random orders of the samples 0 .. N-1.

    The first n of an order are a random subset of n, drawn without replacement, and part of its
    subset of any larger n. Methods that see the same orders are compared on the same subsets
    (common random numbers), so what the draws do to both cancels in their difference.

    Args:
        num_samples: N.
        num_draws: the standard error of a mean over subsets shrinks with its square root.
        seed: the orders are a function of it, N and `num_draws` alone.
    """
    stream = np.random.default_rng(seed)
    return stream.permuted(np.tile(np.arange(num_samples), (num_draws, 1)), axis=1)
