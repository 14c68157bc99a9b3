"""How well data and policies can be read by the checker: two other readings, and a least rate.

A policy that only learned to write `#### n` gains much under the strict reading and nothing under
the lenient one: side by side they tell a gain in format from a gain in skill. After the strict and
flexible readings of GSM8K in the Language Model Evaluation Harness (Gao et al. 2024,
https://doi.org/10.5281/zenodo.12608602); departure: theirs are two patterns that can each be right
where the other is wrong; here right by the strict reading is right by the checker, and that is
right by the lenient one.

A format that the checker does not understand looks like a policy that is always wrong: every
reward is 0 and nothing says why. So `check_rate` makes it an error, found before any training.
"""

import re
from collections.abc import Sequence

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


MIN_RATE = 0.9


def check_rate(num_read: int, unreadable: Sequence[str]) -> float:
    """The share of known-good solutions of which the checker reads a final answer.

    Args:
        num_read: solutions with a readable final answer.
        unreadable: for each of the others, why it was rejected.

    Raises:
        ValueError: the share is below 90 %, or there is no solution at all.
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
