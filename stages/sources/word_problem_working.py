"""How a person works out a generated problem, line by line, with or without a mistake."""

from collections.abc import Sequence
from dataclasses import dataclass

from stages.sources.word_problem_text import Move

SLIPS = (-10, -2, -1, 1, 2, 10)
"""By how much a person miscalculates."""
GUESSES = (-10, -5, -3, -2, -1, 0, 1, 2, 3, 5, 10)
"""How far a person's guess is from the answer."""


@dataclass(frozen=True, slots=True)
class Slip:
    """One wrong result, which the later lines carry on."""

    index: int
    """The line, from 0."""
    delta: int
    """What the result is too large by."""


def guess(value: int) -> str:
    """An answer without any working."""
    return f"#### {value}"


def write(
    start: int,
    moves: Sequence[Move],
    *,
    max_value: int,
    misread: bool = False,
    slip: Slip | None = None,
) -> str:
    """The worked answer.

    Args:
        start: the quantity before the first move.
        moves: what the question says.
        max_value: the largest result that a person would accept; none is below 0.
        misread: whether "n times as many" is read as "n more".
        slip: the line whose result is wrong.
    """
    value = start
    lines = []
    for index, truth in enumerate(moves):
        move = Move("+", truth.operand) if truth.operator == "*" and misread else truth
        result = move.result(value)
        if slip is not None and index == slip.index:
            result += slip.delta
        # A wrong value carried on may leave the range that a person would accept.
        result = min(max(result, 0), max_value)
        lines.append(f"{value} {move.operator} {move.operand} = {result}")
        value = result
    return "\n".join([*lines, f"#### {value}"])
