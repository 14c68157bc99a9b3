"""One label from the two orders in which a judge reads a pair.

A judge that favours a position says so twice, once for each answer, and the mean of the two
readings is free of any part of it that is the same for both. Lee et al. 2023, "RLAIF", section
2.2, https://arxiv.org/abs/2309.00267.
"""


def soft_label(p12: float, p21: float) -> float:
    """P(A is better): ``(p12 + 1 - p21) / 2``.

    Args:
        p12: P(the first is better) in the order A, B.
        p21: P(the first is better) in the order B, A.
    """
    return (p12 + 1.0 - p21) / 2.0


def gap(p12: float, p21: float) -> float:
    """How far the orders disagree: ``|p12 - (1 - p21)|``, 0 for a judge blind to the order."""
    return abs(p12 - (1.0 - p21))


def consistent(p12: float, p21: float) -> bool:
    """Whether both orders prefer the same answer; a reading of exactly 1/2 prefers none."""
    return (p12 - 0.5) * (0.5 - p21) > 0.0
