"""The columns of a file of preferences, and the label in one of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stages.params import Params
from stages.records.preferences import RawPreference
from stages.sources.quarantine import RejectedError


class Columns(Params):
    """What the file calls its columns."""

    prompt: str | None
    """The prompt; null where both answers begin with it (chat, transcript)."""
    chosen: str
    """The answer that was preferred."""
    rejected: str
    """The other one."""
    probability: str | None
    """A number from 0 to 1, P(chosen is better), or true and false; null: chosen always is."""


def probability(fields: Mapping[str, Any], columns: Columns) -> float:
    """P(chosen is better); 1 where the file has no such column.

    Raises:
        RejectedError: it is no number from 0 to 1, or 1/2, which prefers neither.
    """
    if columns.probability is None:
        return 1.0
    value = fields.get(columns.probability)
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise RejectedError(
            f"no probability: '{columns.probability}' should be a number from 0 to 1 and is "
            f"{value!r:.60}"
        )
    if value == 0.5:
        raise RejectedError(f"tie: '{columns.probability}' is 0.5 and prefers neither answer")
    return float(value)


def better_first(pair: RawPreference) -> RawPreference:
    """The pair with the answer that is more likely the better one as `chosen`.

    A soft label below 1/2 says that `rejected` is better: every count of pairs ordered rightly
    takes `chosen` for the better one.
    """
    if pair.probability >= 0.5:
        return pair
    return replace(
        pair, chosen=pair.rejected, rejected=pair.chosen, probability=1.0 - pair.probability
    )


def check_answers(pair: RawPreference) -> RawPreference:
    """The pair itself.

    Raises:
        RejectedError: an answer is empty, or both are the same.
    """
    for name, answer in (("chosen", pair.chosen), ("rejected", pair.rejected)):
        if not answer.strip():
            raise RejectedError(f"empty answer: '{name}' says nothing after the prompt")
    if pair.chosen.strip() == pair.rejected.strip():
        raise RejectedError(f"equal answers: both are {pair.chosen.strip()!r:.60}")
    return pair
