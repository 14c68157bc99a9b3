"""Refuse data whose solutions the answer checker cannot read.

A format that the checker does not understand looks like a policy that is always wrong:
every reward is 0 and nothing says why. So it is an error, found before any training.
"""

from collections.abc import Sequence

MIN_RATE = 0.9


def check(num_read: int, unreadable: Sequence[str]) -> float:
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
