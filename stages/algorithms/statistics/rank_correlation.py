"""Whether two quantities rise together, whatever their scales."""

import numpy as np
from jaxtyping import Float


def spearman(
    first: Float[np.ndarray, " sample"], second: Float[np.ndarray, " sample"]
) -> float | None:
    """Spearman's rank correlation: Pearson's correlation of the ranks, ties at their mean rank.

    From -1 to 1. Spearman 1904 (https://doi.org/10.2307/1412159).

    With (1, 2, 3, 4) and (1, 3, 2, 4): 1 - 6 (0 + 1 + 1 + 0) / (4 (16 - 1)) = 0.8.

    Returns:
        The correlation, or None where one of the two is constant (or there is one sample): ranks
        without spread say nothing.
    """
    a, b = _ranks(first), _ranks(second)
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread > 0 else None


def _ranks(values: Float[np.ndarray, " sample"]) -> Float[np.ndarray, " sample"]:
    assert len(values), "no samples"
    assert np.isfinite(values).all(), "values must be finite"
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    # A block of c ties that ends at rank e has the ranks e - c + 1, ..., e.
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    return mean_ranks[places]
