"""Answers that hedge: several final statements, or several numbers in the one that counts."""

import re

from stages.rewards import answer_checker
from stages.rewards.answer_extraction import extract, statements

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*", re.ASCII)


def states_several(completion: str) -> bool:
    """Whether there is more than one final-answer statement, of different content."""
    return len(set(statements(completion))) > 1


def lists_answers(completion: str) -> bool:
    """Whether the last statement names two or more numbers and is none itself (`5 or 7`).

    `2/4`, `1,000` and `5 = 5` are no lists: the first two are read as one number, the last
    names one number only.
    """
    answer = extract(completion)
    if answer is None or answer_checker.canonical(answer) is not None:
        return False
    return len(set(_NUMBER.findall(answer))) > 1
