"""A function of one completion, called for every completion of a batch."""

from collections.abc import Callable

from stages.records.problems import Prompt
from stages.rewards.answered import Answered
from stages.rewards.judged import Judged

MAX_SHOWN = 2000
"""Characters of a completion that an error message shows."""


def each(answered: Answered, value: Callable[[Prompt, str], float]) -> Judged:
    """`value` of each completion.

    Raises:
        ValueError: `value` raised, or gave no number; naming the completion.
    """
    found: list[float] = []
    for index, text in enumerate(answered.texts):
        try:
            found.append(float(value(answered.prompt(index), text)))
        except Exception as error:
            message = f"{type(error).__name__}: {error}, on {shown(answered, index)}"
            raise ValueError(message) from error
    return Judged(totals=found)


def shown(answered: Answered, index: int) -> str:
    """Which completion it is, by its prompt's id, and what it says."""
    text = answered.texts[index]
    rest = f" and {len(text) - MAX_SHOWN} characters more" if len(text) > MAX_SHOWN else ""
    return (
        f"completion {index}, of prompt '{answered.prompt(index).id}': {text[:MAX_SHOWN]!r}{rest}"
    )
