"""Answers that hedge: several final statements, or several numbers in the one that counts."""

import re

from stages.rewards import answer_checker
from stages.rewards.answer_extraction import extract, statements

_NUMBER = r"[-$]?\d+(?:[.,]\d+)*"
_LIST = re.compile(
    rf"{_NUMBER}[^\d=+*]{{0,12}}(?:,|;|/|\bor\b|\band\b)[^\d=+*]{{0,12}}{_NUMBER}", re.ASCII
)
"""Two numbers with a word or sign of listing between them, and no arithmetic."""


def states_several(completion: str) -> bool:
    """Whether final answers of different values are stated; what cannot be read is none.

    A line such as `#### 4 + 3 = 7` before the final `#### 7` is working in the wrong place.
    """
    values = {answer_checker.canonical(content) for content in statements(completion)}
    return len(values - {None}) > 1


def lists_answers(completion: str) -> bool:
    """Whether the last statement lists numbers (`5 or 7`) and is no number itself.

    `2/4` and `1,000` are no lists: they are read as one number. Nor is `5 + 2 = 7`.
    """
    answer = extract(completion)
    if answer is None or answer_checker.canonical(answer) is not None:
        return False
    return _LIST.search(answer) is not None
