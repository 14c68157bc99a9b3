"""Does a completion have the format that the demonstrations teach?

The definition: the last non-empty line is `#### n` with an `n` that the answer checker
can read, at least one line before it holds a letter or a digit (the working), and the
completion states no other final answer in any form.
"""

import re
from itertools import islice

from stages.rewards.answer_checker import canonical
from stages.rewards.answer_extraction import statements

_LAST_LINE = re.compile(r"####[ \t]*[^\n<]+")
_WORKING = re.compile(r"[A-Za-z0-9]")


def has_format(completion: str) -> bool:
    """Whether `completion` is working, then exactly one readable final answer `#### n`."""
    working, _, last_line = completion.rstrip().rpartition("\n")
    if not _LAST_LINE.fullmatch(last_line) or not _WORKING.search(working):
        return False
    stated = list(islice(statements(completion), 2))
    return len(stated) == 1 and "####" not in working and canonical(stated[0]) is not None


def reward(completion: str) -> float:
    """1.0 for a completion that has the format, else 0.0."""
    return float(has_format(completion))
