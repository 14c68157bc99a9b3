r"""One final answer, inside `\boxed{}`."""

import re
from itertools import islice
from typing import Literal

from stages.params import Params
from stages.rewards.answer_checker import canonical
from stages.rewards.answer_extraction import statements
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.each_completion import each
from stages.rewards.judged import Judged

_BOXED = re.compile(r"\\boxed\{")


class Boxed(Params):
    r"""1 where a completion states exactly one final answer, readable, in `\boxed{}`, else 0."""

    kind: Literal["boxed"]

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """See `is_boxed`."""
        return each(answered, lambda _, text: is_boxed(text))


def is_boxed(text: str) -> bool:
    r"""Whether `\boxed{...}` is the one answer that `text` states, and can be read.

    Several boxes, or a box beside `#### n`, are a list of answers and count as none.
    """
    if text.count("\\boxed") != 1 or not _BOXED.search(text):
        return False
    stated = list(islice(statements(text), 2))
    return len(stated) == 1 and canonical(stated[0]) is not None
