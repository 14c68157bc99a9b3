"""Two other ways to read a completion's answer, one stricter than the checker, one laxer.

A policy that only learned to write `#### n` gains much under the strict reading and nothing under
the lenient one: side by side they tell a gain in format from a gain in skill. After the strict and
flexible readings of GSM8K in the Language Model Evaluation Harness (Gao et al. 2024,
https://doi.org/10.5281/zenodo.12608602); departure: theirs are two patterns that can each be right
where the other is wrong; here right by the strict reading is right by the checker, and that is
right by the lenient one.
"""

import re

from stages.rewards.answer_checker import is_correct, matches

_LAST_LINE = re.compile(r"####[ \t]*[^\n<]+")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_INSPECTED = 20_000


def strict(completion: str, gold: str) -> bool:
    """Whether the last line is `#### n` and the checker finds it right."""
    last_line = completion.rstrip().rpartition("\n")[2]
    return _LAST_LINE.fullmatch(last_line) is not None and is_correct(completion, gold)


def lenient(completion: str, gold: str) -> bool:
    """Whether the checker finds it right, or the last number of the text, stated or not, is."""
    if is_correct(completion, gold):
        return True
    numbers = _NUMBER.findall(completion[-_INSPECTED:])
    return bool(numbers) and matches(numbers[-1].rstrip(","), gold)
