"""Pairs by how much longer their better completion is: does a score know more than lengths?

A score that has learned "longer is better" orders pairs rightly as long as the better one is
longer, and only then. So accuracy is told for each bucket of length differences, and for pairs
of matched lengths, where length is no evidence. Why: Singhal et al. 2023, "A Long Way to Go"
(https://arxiv.org/abs/2310.03716): most of what PPO gains in such a reward is length.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int


def matched(differences: Int[np.ndarray, " pair"], *, tolerance: int) -> Bool[np.ndarray, " pair"]:
    """Pairs whose lengths differ by at most `tolerance` tokens."""
    return np.abs(differences) <= tolerance


def buckets(
    differences: Int[np.ndarray, " pair"], edges: Sequence[int]
) -> dict[str, Bool[np.ndarray, " pair"]]:
    """Which pairs are in each bucket, named by its bounds, both of them within.

    With edges (-5, 0, 5): "<= -6", "-5 .. -1", "0 .. 4", ">= 5": an edge begins its bucket.
    Buckets without pairs are there, all False.

    Args:
        differences: tokens of the better completion minus tokens of the worse one.
        edges: ascending.
    """
    assert list(edges) == sorted(set(edges)) and edges, edges  # noqa: PT018
    names = [
        f"<= {edges[0] - 1}",
        *(f"{low} .. {high - 1}" for low, high in itertools.pairwise(edges)),
        f">= {edges[-1]}",
    ]
    place = np.searchsorted(np.array(edges), differences, side="right")
    return {name: place == number for number, name in enumerate(names)}
