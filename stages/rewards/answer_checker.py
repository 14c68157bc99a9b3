r"""Is the final answer of a completion the gold answer, and is it in the format?

A final answer is stated in one of four ways:

    #### 42        \boxed{42}        <answer>42</answer>        The answer is 42.

The last statement of a completion counts, whatever its form and whether or not its content can be
read: a policy gains nothing by listing several answers. A statement that is empty or not closed
does not count as one.

The cheap rule reads both answers as exact numbers (`number_parsing`) and compares them. Only where
one of them is no number but a mathematical expression (`\sqrt{2}`, `(1, 2)`, `x^2 + 1`) is
math-verify asked, in a process of its own with a hard time limit (`symbolic_equality`). Nothing
that a model wrote is evaluated here. Against a gold number, unevaluated arithmetic (`48 + 24`) is
wrong: the working is not the answer. Roots and powers (`\sqrt{16}`, `10^3`) go to math-verify.

A policy that only learned to write `#### n` gains much under the `strict` reading and nothing under
the `lenient` one: side by side they tell a gain in format from a gain in skill. After the strict
and flexible readings of GSM8K in the Language Model Evaluation Harness (Gao et al. 2024,
https://doi.org/10.5281/zenodo.12608602), of which each can be right where the other is wrong;
departure: what is right by our strict one is right by the lenient one, too.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from stages.rewards import symbolic_equality
from stages.rewards.number_parsing import MAX_CHARACTERS, number, tidy

MAX_INSPECTED = 20_000
"""Characters at the end of a completion that are looked at."""
MAX_ANSWER = 300
"""A statement whose content is longer is not a final answer."""
MAX_STATEMENTS = 20
"""Openings looked at, from the end: keeps the work linear on text made to be slow."""

_OPENING = re.compile(r"(?<!#)####(?!#)|\\boxed(?=[ {\d])|<answer>|[Aa]nswer is\b")
_LINE = re.compile(rf"[ \t:]*([^\n<]{{1,{MAX_ANSWER}}})")
_TAGGED = re.compile(rf"([^<]{{1,{MAX_ANSWER}}})</answer>")
# Until the end of the line or sentence; the point in `3.5` ends neither.
_SENTENCE = re.compile(rf"[ \t:]*([^\n]{{1,{MAX_ANSWER}}}?)(?=\.?\s*(?:\n|$)|[.;!?]\s)")
_UNBRACED = re.compile(r" *(\d+)", re.ASCII)


def extract(completion: str) -> str | None:
    """The content of the last final-answer statement, None when there is none."""
    return next(statements(completion), None)


def statements(completion: str) -> Iterator[str]:
    """The contents of the final-answer statements, the last one first."""
    text = completion[-MAX_INSPECTED:]
    openings = list(_OPENING.finditer(text))
    contents = (_content(text, opening) for opening in reversed(openings[-MAX_STATEMENTS:]))
    yield from filter(None, contents)


def _content(text: str, opening: re.Match[str]) -> str | None:
    if opening[0] == "\\boxed":
        return _boxed(text, opening.end())
    form = {"####": _LINE, "<answer>": _TAGGED}.get(opening[0], _SENTENCE)
    found = form.match(text, opening.end())
    if found is None:
        return None
    content = found[1].strip()
    # `\boxed{The answer is 5}`: the brace belongs to the outer form.
    return content.rstrip("}").strip() if "{" not in content else content


def _boxed(text: str, start: int) -> str | None:
    r"""The content of `\boxed{...}`, whose braces may nest; a bare number after `\boxed`."""
    if text[start] != "{":
        found = _UNBRACED.match(text, start)
        return found[1] if found else None
    depth = 0
    for position in range(start, min(start + MAX_ANSWER, len(text))):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + 1 : position].strip()
    return None


_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{2,}")
_FUNCTIONS = frozenset(("sqrt", "pi", "sin", "cos", "tan", "log", "ln", "exp", "oo", "abs"))
_STRUCTURE = re.compile(r"[-+*/^=()\[\]|]|\\[A-Za-z]|sqrt|pi|\d ?[A-Za-z]\b")
_ARITHMETIC = re.compile(r"(?:[\d\s.,+*/×÷=()\u2212-]|x(?= ?\d))*", re.ASCII)


def is_correct(completion: str, gold: str) -> bool:
    """Whether the last final answer that `completion` states equals the gold answer."""
    answer = extract(completion)
    return answer is not None and matches(answer, gold)


def matches(answer: str, gold: str) -> bool:
    """Whether two final answers are the same value."""
    gold_number, answer_number = number(gold), number(answer)
    if gold_number is not None and answer_number is not None:
        return gold_number == answer_number
    if canonical(gold) is None or canonical(answer) is None:
        return False
    # `7 = 7` or `(7)`: no number, and nothing that math-verify should make one of.
    if gold_number is not None and not re.search(r"\\|\^|sqrt|pi", answer):
        return False
    same = tidy(gold).replace(" ", "") == tidy(answer).replace(" ", "")
    return same or symbolic_equality.equal(answer, gold)


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
    return extract(text) if states_an_answer(text) else None


def states_an_answer(completion: str) -> bool:
    """Whether `completion` states a final answer, the last of which can be read."""
    answer = extract(completion)
    return answer is not None and canonical(answer) is not None


def states_one_answer(completion: str) -> bool:
    """Whether `completion` states exactly one final answer, which can be read."""
    stated = list(islice(statements(completion), 2))
    return len(stated) == 1 and canonical(stated[0]) is not None


def _is_expression(text: str) -> bool:
    """Mathematics that is not mere arithmetic on numbers, and no prose."""
    if len(text) > MAX_CHARACTERS or not text.isascii():
        return False
    text = tidy(text)
    if _ARITHMETIC.fullmatch(text) and not re.search(r"[(\[].*,", text):
        return False
    words = _WORD.findall(_COMMAND.sub(" ", text))
    return all(word in _FUNCTIONS for word in words) and bool(_STRUCTURE.search(text))


_ANSWER_LINE = re.compile(r"####[ \t]*[^\n<]+")
_WORKING = re.compile(r"[A-Za-z0-9]")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def has_format(completion: str) -> bool:
    """Whether `completion` is working, then exactly one readable final answer `#### n`."""
    working, _, last_line = completion.rstrip().rpartition("\n")
    if not _ANSWER_LINE.fullmatch(last_line) or not _WORKING.search(working):
        return False
    return "####" not in working and states_one_answer(completion)


def strict(completion: str, gold: str) -> bool:
    """Whether the last line is `#### n` and the checker finds it right."""
    last_line = completion.rstrip().rpartition("\n")[2]
    return _ANSWER_LINE.fullmatch(last_line) is not None and is_correct(completion, gold)


def lenient(completion: str, gold: str) -> bool:
    """Whether the checker finds it right, or the last number of the text, stated or not, is."""
    if is_correct(completion, gold):
        return True
    numbers = _NUMBER.findall(completion[-MAX_INSPECTED:])
    return bool(numbers) and matches(numbers[-1].rstrip(","), gold)


MIN_RATE = 0.9


def check_rate(num_read: int, unreadable: Sequence[str]) -> float:
    """The share of known-good solutions of which the checker reads a final answer.

    A format that it cannot read looks like a policy that is always wrong: every reward is 0 and
    nothing says why. So a share below 90 % is an error, found before any training. `unreadable`
    says of each of the others why it was rejected.
    """
    total = num_read + len(unreadable)
    if total == 0:
        raise ValueError(
            "no problem of the train split has a solution, so there is nothing to imitate: "
            "train_sft needs demonstrations. Add solutions to the data, or name their column."
        )
    rate = num_read / total
    if rate < MIN_RATE:
        raise ValueError(
            f"the answer checker reads a final answer in {rate:.1%} of {total} solutions; at "
            f"least {MIN_RATE:.0%} are needed, or rewards would be silently zero. One that it "
            f"cannot read: {unreadable[0]}. End solutions with `#### 42`, `\\boxed{{42}}`, "
            f"`<answer>42</answer>` or `The answer is 42.`"
        )
    return rate
