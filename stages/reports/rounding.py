"""The decimals that metrics keep."""

from collections.abc import Sequence

DIGITS = 6
"""Far below any interval's width, above the rounding of a sum in another order."""


def rounded(numbers: Sequence[float]) -> list[float]:
    """Plain floats with `DIGITS` decimals; no negative zero."""
    return [round(float(number), DIGITS) + 0.0 for number in numbers]
