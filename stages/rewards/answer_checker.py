r"""Is the final answer of a completion the gold answer?

The cheap rule reads both answers as exact numbers (`number_parsing`) and compares
them. Only where one of them is no number but a mathematical expression (`\sqrt{2}`,
`(1, 2)`, `x^2 + 1`) is math-verify asked, in a process of its own with a hard time
limit (`symbolic_equality`). Nothing that a model wrote is evaluated here.

Against a gold number, unevaluated arithmetic (`48 + 24`) is wrong: the working is
not the answer. Roots and powers (`\sqrt{16}`, `10^3`) are given to math-verify.
"""

import re

from stages.rewards import symbolic_equality
from stages.rewards.answer_extraction import extract
from stages.rewards.number_parsing import MAX_CHARACTERS, number, tidy

__all__ = ["canonical", "extract", "is_correct", "matches", "read_gold", "states_an_answer"]

_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{2,}")
_FUNCTIONS = frozenset(("sqrt", "pi", "sin", "cos", "tan", "log", "ln", "exp", "oo", "abs"))
_STRUCTURE = re.compile(r"[-+*/^=()\[\]|]|\\[A-Za-z]|sqrt|pi|\d ?[A-Za-z]\b")
_ARITHMETIC = re.compile(r"(?:[\d\s.,+*/×÷=()\u2212-]|x(?= ?\d))*", re.ASCII)


def is_correct(completion: str, gold: str) -> bool:
    """Whether the last final answer that `completion` states equals `gold`.

    Args:
        completion: what the model wrote.
        gold: the gold answer itself (`1,234`), not a text that states it.
    """
    answer = extract(completion)
    return answer is not None and matches(answer, gold)


def matches(answer: str, gold: str) -> bool:
    """Whether two final answers are the same value."""
    gold_number, answer_number = number(gold), number(answer)
    if gold_number is not None and answer_number is not None:
        return gold_number == answer_number
    if gold_number is None and not _is_expression(gold):
        return False
    if answer_number is None and not _is_expression(answer):
        return False
    # `7 = 7` or `(7)`: no number, and nothing that math-verify should make one of.
    if gold_number is not None and not re.search(r"\\|\^|sqrt|pi", answer):
        return False
    if tidy(gold).replace(" ", "") == tidy(answer).replace(" ", ""):
        return True
    return symbolic_equality.equal(answer, gold)


def canonical(answer: str) -> str | None:
    """One text for all ways to write a value, for grouping answers in a vote.

    `1,000.0`, `$1000` and `2000/2` are all `1000`; `0.75` is `3/4`. An expression that is
    no number is its own tidied text without spaces. None: the checker cannot read it.
    """
    value = number(answer)
    if value is not None:
        return str(value)
    return tidy(answer).replace(" ", "") if _is_expression(answer) else None


def read_gold(text: str) -> str | None:
    """The final answer that a source's answer field gives: itself, or the one it states last.

    `1,234` is itself; of `half of 8 is 4 #### 4` it is `4`; None: neither can be read.
    """
    text = text.strip()
    if canonical(text) is not None:
        return text
    answer = extract(text)
    return answer if answer is not None and canonical(answer) is not None else None


def states_an_answer(completion: str) -> bool:
    """Whether `completion` states a final answer, the last of which can be read."""
    answer = extract(completion)
    return answer is not None and canonical(answer) is not None


def _is_expression(text: str) -> bool:
    """Mathematics that is not mere arithmetic on numbers, and no prose."""
    if len(text) > MAX_CHARACTERS or not text.isascii():
        return False
    text = tidy(text)
    if _ARITHMETIC.fullmatch(text) and not re.search(r"[(\[].*,", text):
        return False
    words = _WORD.findall(_COMMAND.sub(" ", text))
    return all(word in _FUNCTIONS for word in words) and bool(_STRUCTURE.search(text))
