"""Grade-school arithmetic word problems from a seed, with demonstrations as people write them.

A problem is a chain of two to four steps on one quantity (gain, loss, "n times as
many"), every value a whole number from 0 to `max_value`. Demonstrations are not all
good, so that imitation has something to get wrong and a reward something to find:
some only guess, some slip in one step and carry the error on, and some hold one
systematic misconception: they read "n times as many" as "n more".
"""

import random
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from stages.params import Params
from stages.records.problems import Problem
from stages.seeding import derive
from stages.sources import word_problem_text
from stages.sources import word_problem_working as working
from stages.sources.word_problem_text import Move
from stages.sources.word_problem_working import Slip


class Config(Params):
    """Which problems to generate, and how well the demonstrations are written."""

    kind: Literal["word_problems"]
    """Names this source."""
    num_problems: int = Field(gt=0)
    """Distinct problems to generate."""
    max_value: int = Field(ge=20, le=199)
    """Largest intermediate value; whole numbers below 200 are one token each."""
    guess_share: float = Field(ge=0, le=1)
    """Share of demonstrations that state an answer without any working."""
    slip_share: float = Field(ge=0, le=1)
    """Share of the worked demonstrations that get one step wrong."""
    misconception_share: float = Field(ge=0, le=1)
    """Share of the worked demonstrations that read "n times as many" as "n more"."""


def problems(config: Config, seed: int) -> Iterator[Problem]:
    """`config.num_problems` problems with distinct questions, the same for the same seed."""
    seen: set[str] = set()
    draw = 0
    while len(seen) < config.num_problems:
        # One stream a draw: problem k does not depend on how problem k - 1 was made.
        rng = random.Random(derive(seed, "word_problems", draw))
        draw += 1
        start, moves, answer = chain(rng, config.max_value)
        question = word_problem_text.tell(rng, start, moves)
        if question in seen:
            continue
        seen.add(question)
        yield Problem(
            id=f"word-{len(seen):06d}",
            question=question,
            answer=str(answer),
            solution=_demonstrate(rng, config, start, moves, answer),
            split=None,
            line=len(seen),
        )


def chain(rng: random.Random, max_value: int) -> tuple[int, list[Move], int]:
    """A start value and two to four moves that stay within 0 to `max_value`."""
    start = value = rng.randint(2, 20)
    moves: list[Move] = []
    num_steps = rng.randint(2, 4)
    while len(moves) < num_steps:
        operator = rng.choice("++--**" if not any(m.operator == "*" for m in moves) else "+-")
        move = Move(operator, rng.randint(2, 4) if operator == "*" else rng.randint(2, 9))
        if 0 <= move.result(value) <= max_value:
            value = move.result(value)
            moves.append(move)
    return start, moves, value


def _demonstrate(
    rng: random.Random, config: Config, start: int, moves: list[Move], answer: int
) -> str:
    """A person's answer: a guess, or worked steps with perhaps a slip or the misconception."""
    if rng.random() < config.guess_share:
        return working.guess(max(0, answer + rng.choice(working.GUESSES)))
    misread = rng.random() < config.misconception_share
    slip_at = rng.randrange(len(moves)) if rng.random() < config.slip_share else None
    slip = None if slip_at is None else Slip(slip_at, rng.choice(working.SLIPS))
    return working.write(start, moves, max_value=config.max_value, misread=misread, slip=slip)
