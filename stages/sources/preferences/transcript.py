r"""Preferences as two transcripts that differ in the last turn only: the form of HH-RLHF.

    {"chosen": "\n\nHuman: Hi\n\nAssistant: Hello!", "rejected": "\n\nHuman: Hi\n\nAssistant: No"}

Bai et al., "Training a Helpful and Harmless Assistant" (2022), https://arxiv.org/abs/2204.05862.
A role's name counts only at the start of a paragraph: some of the people's texts say `Human:`
inside a line, which is theirs.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from stages.records.preferences import RawPreference, Turn
from stages.sources import row_fields
from stages.sources.preferences.columns import Columns, probability
from stages.sources.quarantine import RejectedError

NAMES = {"user": "Human", "assistant": "Assistant"}
ROLES = {name: role for role, name in NAMES.items()}
_TURN = re.compile(rf"\n\n({'|'.join(ROLES)}):")


def render(turns: Sequence[Turn]) -> str:
    r"""The turns as a transcript that ends where the assistant is to speak.

    A system message stands before the first turn. `[user: Hi]` gives
    "\n\nHuman: Hi\n\nAssistant:", to which " Hello!" is an answer.
    """
    spoken = [
        turn.content if turn.role == "system" else f"\n\n{NAMES[turn.role]}: {turn.content}"
        for turn in turns
    ]
    return "".join([*spoken, f"\n\n{NAMES['assistant']}:"])


def parse(text: str) -> list[Turn]:
    """The turns of a transcript, their texts stripped.

    Raises:
        RejectedError: it does not begin with a turn.
    """
    before, *parts = _TURN.split(text)
    if before.strip() or not parts:
        raise RejectedError(f"no transcript: expected a text that begins with a turn, found "
                            f"{text!r:.60}")  # fmt: skip
    return [
        Turn(ROLES[name], content.strip())
        for name, content in zip(parts[::2], parts[1::2], strict=True)
    ]


def pair(fields: Mapping[str, Any], columns: Columns, line: int) -> RawPreference:
    """The pair that a row holds.

    Raises:
        RejectedError: a transcript is malformed, or they share other than all but the last turn.
    """
    chosen, rejected = (
        parse(row_fields.verbatim(fields, column)) for column in (columns.chosen, columns.rejected)
    )
    turns, answers = split_last(chosen, rejected)
    return RawPreference(
        turns=turns,
        plain_prompt=render(turns),
        plain_lead=" ",
        chosen=answers[0],
        rejected=answers[1],
        probability=probability(fields, columns),
        line=line,
    )


def split_last(
    chosen: Sequence[Turn], rejected: Sequence[Turn]
) -> tuple[tuple[Turn, ...], tuple[str, str]]:
    """The turns that two conversations share, and the answer in which each ends.

    Raises:
        RejectedError: they share other than all but the last turn, the last is not the
            assistant's, or the one before it is not the user's.
    """
    *turns, answer = chosen
    *other, other_answer = rejected
    if turns != other:
        raise RejectedError(
            f"no common prompt: 'chosen' has {len(chosen)} turns and 'rejected' {len(rejected)}, "
            f"and they differ before the last"
        )
    if {answer.role, other_answer.role} != {"assistant"}:
        raise RejectedError("no answer: the last turn is not the assistant's")
    if not turns or turns[-1].role != "user":
        raise RejectedError("no question: the turn before the answer is not the user's")
    return tuple(turns), (answer.content, other_answer.content)
