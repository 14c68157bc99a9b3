"""What a judge's readings of pairs in both orders say about the judge, and about the truth.

All of it is arithmetic on p12 and p21, the probabilities that the judge gives to whichever answer
stands first in the orders A, B and B, A. A reading of exactly 1/2 counts as half a win for each.
Zheng et al. 2023, "Judging LLM-as-a-Judge", section 3.3 and 4.2, https://arxiv.org/abs/2306.05685.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float


def wins(probabilities: Float[np.ndarray, " pair"]) -> Float[np.ndarray, " pair"]:
    """1 where the probability is above 1/2, 0 below, 1/2 at it."""
    return (np.sign(probabilities - 0.5) + 1.0) / 2.0


def first_position(
    p12: Float[np.ndarray, " pair"], p21: Float[np.ndarray, " pair"]
) -> Float[np.ndarray, " pair"]:
    """Share of the two readings that prefer whichever answer stands first; unbiased: 1/2."""
    return (wins(p12) + wins(p21)) / 2.0


def right(
    probabilities: Float[np.ndarray, " pair"], a_is_better: Bool[np.ndarray, " pair"]
) -> Float[np.ndarray, " pair"]:
    """1 where P(A is better) is on the side of the truth, 0 where not, 1/2 where undecided."""
    a_wins = wins(probabilities)
    return np.where(a_is_better, a_wins, 1.0 - a_wins)


def single_order_right(
    p12: Float[np.ndarray, " pair"],
    p21: Float[np.ndarray, " pair"],
    a_is_better: Bool[np.ndarray, " pair"],
) -> Float[np.ndarray, " pair"]:
    """The expected `right` of reading a pair once, in an order drawn by a coin."""
    return (right(p12, a_is_better) + right(1.0 - p21, a_is_better)) / 2.0


def by_problem(
    problems: Sequence[str], values: Float[np.ndarray, "pair column"]
) -> Float[np.ndarray, "problem column"]:
    """Means over each problem's pairs, problems in the order of their first pair."""
    rows = {problem: number for number, problem in enumerate(dict.fromkeys(problems))}
    index = np.array([rows[problem] for problem in problems])
    sums = np.zeros((len(rows), values.shape[1]))
    np.add.at(sums, index, values)
    return sums / np.bincount(index, minlength=len(rows))[:, None]


def cohens_kappa(judge: Float[np.ndarray, " pair"], truth: Bool[np.ndarray, " pair"]) -> float:
    """Agreement beyond chance on which of A and B is better: ``(o - e) / (1 - e)``.

        o = observed agreement,  e = q t + (1 - q)(1 - t)

    with q and t the shares of A among the judge's and the true verdicts. Cohen 1960,
    https://doi.org/10.1177/001316446002000104. 0 where chance alone would agree fully.

    Args:
        judge: `wins` of P(A is better).
        truth: whether A is better.
    """
    true = truth.astype(float)
    observed = float((judge * true + (1.0 - judge) * (1.0 - true)).mean())
    q, t = float(judge.mean()), float(true.mean())
    expected = q * t + (1.0 - q) * (1.0 - t)
    return 0.0 if expected == 1.0 else (observed - expected) / (1.0 - expected)
