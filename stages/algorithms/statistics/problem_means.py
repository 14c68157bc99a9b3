"""Rows of the same problem as one number: they share its difficulty and its completions."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int


def problem_numbers(ids: Sequence[str]) -> Int[np.ndarray, " row"]:
    """The problem of each row as a number, from 0 in order of appearance."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(ids))}
    return np.array([numbers[name] for name in ids], dtype=np.int64)


def problem_means(
    values: Float[np.ndarray, "row column"], problems: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "problem column"]:
    """The mean of each problem's rows; problems without rows are absent.

    Args:
        values: one row a pair, or a completion.
        problems: the number of each row's problem.
    """
    _, places, counts = np.unique(problems, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, places, values)
    return sums / counts[:, None]
