"""How good probabilities of a yes or no are."""

import numpy as np
from jaxtyping import Bool, Float

# A probability of 0 that came true would cost infinitely much; float32 rounds to it.
SMALLEST = 1e-7


def balanced_accuracy(
    scores: Float[np.ndarray, " sample"],
    is_right: Bool[np.ndarray, " sample"],
    *,
    threshold: float,
) -> float | None:
    """Mean of the accuracy on the right ones and on the wrong ones; right is score >= threshold.

    1/2 for one answer to everything, whatever the share of the right ones.

    Returns:
        The mean, or None where one of the two does not occur.
    """
    if is_right.all() or not is_right.any():
        return None
    said = scores >= threshold
    return float((said[is_right].mean() + (~said[~is_right]).mean()) / 2)


def negative_log_likelihood(
    probabilities: Float[np.ndarray, " sample"], labels: Float[np.ndarray, " sample"]
) -> float:
    """Mean of - p log q - (1 - p) log (1 - q), with q at least 1e-7 from 0 and 1.

    Args:
        probabilities: q, predicted.
        labels: p, what came true: 0, 1, or a soft label between.
    """
    q = np.clip(probabilities, SMALLEST, 1 - SMALLEST)
    return float(-(labels * np.log(q) + (1 - labels) * np.log1p(-q)).mean())
