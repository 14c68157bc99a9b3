"""The same word problem with other numbers, and its answer.

GSM1k (Zhang et al. 2024, https://arxiv.org/abs/2405.00332) and GSM-Symbolic (Mirzadeh et al. 2024,
https://arxiv.org/abs/2410.05229) ask whether accuracy survives problems that cannot have been
seen. Here the numbers are drawn by the generator itself, given the operations: chains are generated
until one makes the same operations in the same order. So new numbers are distributed as the old
ones are, and a problem is as hard on average.
"""

import random
import re
from collections.abc import Sequence

from stages.seeding import derive
from stages.sources import word_problem_text
from stages.sources.word_problem_text import Move
from stages.sources.word_problems import chain

MAX_DRAWS = 200_000
"""Of chains for all problems together; the rarest operations come once in about 300."""

_DIGITS = re.compile(r"\d+")


def redraw(questions: Sequence[str], *, seed: int) -> list[tuple[str, str] | None]:
    """(question, answer) for each question: its words, other numbers; None where there are none.

    None of a question that the generator cannot have told, and, should that be, of one whose
    operations did not come in `MAX_DRAWS` draws. The largest value that may occur is the
    largest that occurs in `questions`.
    """
    told = [word_problem_text.read(question) for question in questions]
    waiting: dict[str, list[int]] = {}
    largest = 0
    for place, one in enumerate(told):
        if one is not None:
            waiting.setdefault(_operators(one[1]), []).append(place)
            largest = max(largest, *word_problem_text.values(*one))
    found: list[tuple[str, str] | None] = [None] * len(questions)
    # Each operators' problems are served in turn, so a draw is used once.
    for places in waiting.values():
        places.reverse()
    for draw in range(MAX_DRAWS):
        if not any(waiting.values()):
            break
        start, moves, answer = chain(random.Random(derive(seed, "redraw", draw)), largest)
        places = waiting.get(_operators(moves))
        if places and told[places[-1]] != (start, moves):
            place = places.pop()
            found[place] = _with_numbers(questions[place], start, moves), str(answer)
    return found


def _operators(moves: Sequence[Move]) -> str:
    return "".join(move.operator for move in moves)


def _with_numbers(question: str, start: int, moves: Sequence[Move]) -> str:
    numbers = iter([start, *(move.operand for move in moves)])
    changed = _DIGITS.sub(lambda _: str(next(numbers)), question)
    assert word_problem_text.read(changed) == (start, list(moves)), changed
    return changed
