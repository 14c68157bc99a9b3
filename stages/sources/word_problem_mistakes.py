"""Answers to a generated problem whose truth is known: right ones, and one for each mistake.

The mistakes are those of the demonstrations (`word_problems`), which a policy that imitates
them makes too: a guess, a slip in one line, "n times as many" read as "n more".
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stages.sources import word_problem_working as working
from stages.sources.word_problem_text import Move
from stages.sources.word_problem_working import Slip


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a problem, and what is wrong with it."""

    text: str
    right: bool
    """Whether its final answer is the problem's."""
    critique: str
    """What a person who knows the truth says of it, of the first mistake only."""


NO_WORKING = "No working."
ALL_RIGHT = "All lines are right."


def right(start: int, moves: Sequence[Move], max_value: int) -> Answer:
    """The answer without a mistake."""
    return Answer(working.write(start, moves, max_value=max_value), True, ALL_RIGHT)


def wrong(
    rng: random.Random,
    start: int,
    moves: Sequence[Move],
    max_value: int,
    *,
    guessed: bool | None = None,
) -> Answer:
    """An answer with one mistake that leads to a wrong result; each possible kind as often.

    Args:
        rng: draws the mistake.
        start: the quantity before the first move.
        moves: what the question says.
        max_value: the largest result that a person would accept.
        guessed: True: a guess; False: working with a mistake in it; None: any.
    """
    truth = _result(right(start, moves, max_value))
    guesses = [list(_guesses(truth, max_value))]
    worked = [list(_slips(start, moves, max_value)), list(_misreadings(start, moves, max_value))]
    kinds = {True: guesses, False: worked, None: guesses + worked}[guessed]
    wrong_ones = [[one for one in kind if _result(one) != truth] for kind in kinds]
    return rng.choice(rng.choice([kind for kind in wrong_ones if kind]))


def _guesses(truth: str, max_value: int) -> Iterator[Answer]:
    for delta in working.GUESSES:
        value = min(max(int(truth) + delta, 0), max_value)
        yield Answer(working.guess(value), False, NO_WORKING)


def _slips(start: int, moves: Sequence[Move], max_value: int) -> Iterator[Answer]:
    for index in range(len(moves)):
        for delta in working.SLIPS:
            slip = Slip(index, delta)
            text = working.write(start, moves, max_value=max_value, slip=slip)
            yield Answer(text, False, f"Line {index + 1} is wrong.")


def _misreadings(start: int, moves: Sequence[Move], max_value: int) -> Iterator[Answer]:
    for index, move in enumerate(moves):
        if move.operator == "*":
            text = working.write(start, moves, max_value=max_value, misread=True)
            yield Answer(text, False, f"Line {index + 1} misreads.")
            return


def _result(answer: Answer) -> str:
    return answer.text.rpartition("#### ")[2]
