"""Grade-school arithmetic word problems from a seed, with demonstrations as people write them.

A problem is a chain of two or three steps on one quantity (gain, loss, "n times as many"), every
value a whole number from 0 to `max_value`. Demonstrations are not all good, so that imitation has
something to get wrong and a reward something to find. Some only guess, some slip in one step and
carry the error on, and some have a systematic misconception: they read "n times as many" as
"n more".

A question is written from its chain of moves. Reading is the inverse of writing, from the same
templates, so the question determines the truth of every step.
"""

import operator
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from typing import ClassVar, Literal

from pydantic import Field

from stages.config import Params
from stages.records.problems import Problem
from stages.seeding import derive_seed

NAMES = {
    "Anna": "She", "Ben": "He", "Carla": "She", "David": "He", "Emma": "She", "Felix": "He",
    "Grace": "She", "Henry": "He", "Iris": "She", "Jonas": "He", "Lena": "She", "Oscar": "He",
}  # fmt: skip
ITEMS = (
    "apples", "books", "cards", "coins", "marbles", "pencils", "shells", "stamps", "stickers",
    "tickets",
)  # fmt: skip
OPENING = "{name} has {n} {items}."
MOVES = {
    "+": ("{who} buys {n} more.", "{who} finds {n} more.", "{who} gets {n} more."),
    "-": ("{who} gives away {n}.", "{who} loses {n}.", "{who} sells {n}."),
    "*": ("Then {name} has {n} times as many.", "Soon {name} has {n} times as many."),
}
QUESTIONS = ("How many {items} now?", "How many {items} in the end?")

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@dataclass(frozen=True, slots=True)
class Move:
    """Change of the quantity: `+ 3`, `- 3` or `* 3`."""

    operator: str
    operand: int

    def result(self, value: int) -> int:
        """Quantity after the move, from `value` before it."""
        return OPERATIONS[self.operator](value, self.operand)


def chain_values(start: int, moves: Sequence[Move]) -> list[int]:
    """The quantity at the start and after each move; the last one is the answer."""
    return list(accumulate(moves, lambda value, move: move.result(value), initial=start))


def write_question(rng: random.Random, start: int, moves: Sequence[Move]) -> str:
    """A question about the quantity that starts at `start` and makes these moves."""
    name = rng.choice(list(NAMES))
    items = rng.choice(ITEMS)
    sentences = [OPENING.format(name=name, n=start, items=items)]
    for move in moves:
        phrase = rng.choice(MOVES[move.operator])
        sentences.append(phrase.format(who=NAMES[name], name=name, n=move.operand))
    sentences.append(rng.choice(QUESTIONS).format(items=items, name=name))
    return " ".join(sentences)


def read_question(question: str) -> tuple[int, list[Move]] | None:
    """Start and moves of a question of `write_question`; None for any other question."""
    sentences = re.split(r"(?<=[.?]) ", question.strip())
    name, items = sentences[0].partition(" ")[0], sentences[0].rpartition(" ")[2].rstrip(".")
    if name not in NAMES or items not in ITEMS:
        return None
    words = {"name": name, "who": NAMES[name], "items": items}
    start = _read_number(OPENING, words, sentences[0])
    if start is None or sentences[-1] not in [form.format(**words) for form in QUESTIONS]:
        return None
    moves = [_read_move(sentence, words) for sentence in sentences[1:-1]]
    parsed = [move for move in moves if move is not None]
    return (start, parsed) if 0 < len(parsed) == len(moves) else None


def _read_move(sentence: str, words: dict[str, str]) -> Move | None:
    numbers = (
        (sign, _read_number(phrase, words, sentence)) for sign in MOVES for phrase in MOVES[sign]
    )
    return next((Move(sign, number) for sign, number in numbers if number is not None), None)


def _read_number(template: str, words: dict[str, str], sentence: str) -> int | None:
    """Number in a sentence of the form `template`; None: it has another form."""
    before, after = template.format(**words, n="|").split("|")
    number = sentence.removeprefix(before).removesuffix(after)
    has_number = sentence == f"{before}{number}{after}" and re.fullmatch("[0-9]{1,9}", number)
    return int(number) if has_number else None


SLIPS = (-10, -2, -1, 1, 2, 10)
"""Errors of a miscalculated result."""
GUESSES = (-10, -5, -3, -2, -1, 0, 1, 2, 3, 5, 10)
"""Differences between a guess and the answer."""


def write_working(
    start: int, moves: Sequence[Move], *, max_value: int, misread: bool = False,
    slip: tuple[int, int] | None = None,
) -> str:  # fmt: skip
    """Worked answer to the question of a chain, every result clipped to 0 .. `max_value`.

    A person would accept no other result, and an error that is carried on may leave that range.
    `misread`: takes "n times as many" for "n more". `slip`: a line, from 0, and the error of its
    result, which later lines carry on.
    """
    value = start
    lines = []
    for index, truth in enumerate(moves):
        move = Move("+", truth.operand) if truth.operator == "*" and misread else truth
        too_large = slip[1] if slip is not None and index == slip[0] else 0
        result = min(max(move.result(value) + too_large, 0), max_value)
        lines.append(f"{value} {move.operator} {move.operand} = {result}")
        value = result
    return "\n".join([*lines, f"#### {value}"])


MAX_STEPS, MAX_OPERAND = 3, 5
"""Most moves of a problem, and the largest number that one adds or takes away. A model of a third
of a million parameters learns these within a minute."""


class WordProblemsConfig(Params):
    """Problems to generate, and the quality of their demonstrations."""

    licence: ClassVar = "Apache-2.0 (generated by this project)"
    kind: Literal["word_problems"]
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


def generate_problems(config: WordProblemsConfig, seed: int) -> Iterator[Problem]:
    """`config.num_problems` problems with distinct questions, the same for the same seed."""
    seen: set[str] = set()
    draws = count()
    while len(seen) < config.num_problems:
        # One random stream per draw: problem k does not depend on problem k - 1.
        rng = random.Random(derive_seed(seed, "word_problems", next(draws)))
        start, moves, answer = draw_chain(rng, config.max_value)
        question = write_question(rng, start, moves)
        if question in seen:
            continue
        seen.add(question)
        yield Problem(
            id=f"word-{len(seen):06d}", question=question, answer=str(answer),
            solution=_demonstrate(rng, config, start, moves, answer), split=None, line=len(seen),
        )  # fmt: skip


def draw_chain(rng: random.Random, max_value: int) -> tuple[int, list[Move], int]:
    """A start value and two to `MAX_STEPS` moves that stay within 0 to `max_value`."""
    start = value = rng.randint(2, 20)
    moves: list[Move] = []
    num_steps = rng.randint(2, MAX_STEPS)
    while len(moves) < num_steps:
        sign = rng.choice("++--**" if not any(m.operator == "*" for m in moves) else "+-")
        move = Move(sign, rng.randint(2, 4 if sign == "*" else MAX_OPERAND))
        if 0 <= move.result(value) <= max_value:
            value = move.result(value)
            moves.append(move)
    return start, moves, value


def _demonstrate(
    rng: random.Random, config: WordProblemsConfig, start: int, moves: list[Move], answer: int
) -> str:
    """A person's answer: a guess, or worked steps with perhaps a slip or the misconception."""
    if rng.random() < config.guess_share:
        return f"#### {max(0, answer + rng.choice(GUESSES))}"
    misread = rng.random() < config.misconception_share
    slip_at = rng.randrange(len(moves)) if rng.random() < config.slip_share else None
    slip = None if slip_at is None else (slip_at, rng.choice(SLIPS))
    return write_working(start, moves, max_value=config.max_value, misread=misread, slip=slip)
