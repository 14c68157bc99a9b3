"""The text of a generated word problem: told from a chain of moves, and read back into it.

Reading is the inverse of telling, from the same templates, so the truth of every step of a
generated problem is known from its question alone.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

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

_BLANK = re.compile(r"\\\{(name|who|items|n)\\\}")
_SENTENCES = re.compile(r"(?<=[.?]) ")


@dataclass(frozen=True, slots=True)
class Move:
    """What happens to the quantity once: `+ 3`, `- 3` or `* 3`."""

    operator: str
    operand: int

    def result(self, value: int) -> int:
        """The quantity after the move, where it was `value` before."""
        match self.operator:
            case "+":
                return value + self.operand
            case "-":
                return value - self.operand
            case _:
                return value * self.operand


def values(start: int, moves: Sequence[Move]) -> list[int]:
    """The quantity at the start and after each move; the last one is the answer."""
    return list(accumulate(moves, lambda value, move: move.result(value), initial=start))


def tell(rng: random.Random, start: int, moves: Sequence[Move]) -> str:
    """A question about the quantity that starts at `start` and makes these moves."""
    name = rng.choice(list(NAMES))
    items = rng.choice(ITEMS)
    sentences = [OPENING.format(name=name, n=start, items=items)]
    for move in moves:
        phrase = rng.choice(MOVES[move.operator])
        sentences.append(phrase.format(who=NAMES[name], name=name, n=move.operand))
    sentences.append(rng.choice(QUESTIONS).format(items=items, name=name))
    return " ".join(sentences)


def read(question: str) -> tuple[int, list[Move]] | None:
    """The start and the moves that `tell` told; None where it can have told no such question."""
    sentences = _SENTENCES.split(question.strip())
    begin = _filled(OPENING, sentences[0])
    if begin is None or begin["name"] not in NAMES or begin["items"] not in ITEMS:
        return None
    middle, last = sentences[1:-1], sentences[-1]
    told = {"name": begin["name"], "who": NAMES[begin["name"]], "items": begin["items"]}
    if last not in [one.format(**told) for one in QUESTIONS]:
        return None
    moves = [_read_move(sentence, told) for sentence in middle]
    known = [move for move in moves if move is not None]
    return (int(begin["n"]), known) if 0 < len(known) == len(moves) else None


def _read_move(sentence: str, told: dict[str, str]) -> Move | None:
    for operator, phrases in MOVES.items():
        for phrase in phrases:
            found = _filled(phrase, sentence)
            # The words besides the number must be those of the opening sentence.
            if found is not None and all(told[key] == found[key] for key in found if key != "n"):
                return Move(operator, int(found["n"]))
    return None


def _filled(template: str, sentence: str) -> dict[str, str] | None:
    """What stands in the blanks of `template`, None when the sentence is not of its form."""
    pattern = _BLANK.sub(
        lambda blank: rf"(?P<{blank[1]}>{'[0-9]{1,9}' if blank[1] == 'n' else '[A-Za-z]+'})",
        re.escape(template),
    )
    found = re.fullmatch(pattern, sentence)
    return found.groupdict() if found else None
