"""Weights that make two labels count alike."""

from jaxtyping import Float
from torch import Tensor


def balanced_weights(probabilities: Float[Tensor, " step"]) -> tuple[float, float]:
    """Weights (w_0, w_1) under which both labels have the same total, their mean weight 1.

        w_1 = n / (2 sum p),   w_0 = n / (2 sum (1 - p))

    The inverse frequencies of King and Zeng, "Logistic Regression in Rare Events Data" (2001),
    section 3.2, with a soft label counted as p of the one and 1 - p of the other. What a model
    learns under them is not P(right) but w_1 p / (w_1 p + w_0 (1 - p)): its scores rank steps
    as before, and 1/2 is where both labels are as likely as they are overall.

    Args:
        probabilities: p of every labelled step of the training set.

    Raises:
        ValueError: a label that never occurs, which no weight can balance.
    """
    total, right = float(len(probabilities)), float(probabilities.double().sum())
    if not 0 < right < total:
        raise ValueError(
            f"expected steps of both labels, found {right:g} right of {total:g}: set "
            f"class_balance: none, or label steps of harder problems or of another policy"
        )
    return total / (2 * (total - right)), total / (2 * right)
