r"""Rows of files of preferences: plain text, conversations, and transcripts.

A prompt and two answers, each in a column of its own (`text`):

    {"prompt": "What is 2+2?\n", "chosen": "4", "rejected": "5"}

Lists of messages with a role and a content (`chat`). Either both lists hold the whole conversation
and share all but the last message, or a column `prompt` holds what they share and each list only
its answer:

    {"chosen": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}],
     "rejected": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "No"}]}

Two transcripts that differ in the last turn only (`transcript`), the form of HH-RLHF: Bai et al.,
"Training a Helpful and Harmless Assistant" (2022), https://arxiv.org/abs/2204.05862.

    {"chosen": "\n\nHuman: Hi\n\nAssistant: Hello!", "rejected": "\n\nHuman: Hi\n\nAssistant: No"}
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stages.params import Params
from stages.records.preferences import RawPreference, Turn
from stages.sources import raw_rows
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


def text_pair(fields: Mapping[str, Any], columns: Columns, line: int) -> RawPreference:
    """The pair that a row holds.

    Raises:
        RejectedError: a column is missing, or holds no text.
    """
    if columns.prompt is None or not fields.get(columns.prompt):
        raise RejectedError(f"no common prompt: there is nothing in column {columns.prompt!r}")
    prompt = raw_rows.verbatim(fields, columns.prompt)
    return RawPreference(
        turns=(Turn("user", prompt.strip()),),
        plain_prompt=prompt,
        plain_lead="",
        chosen=_answer(fields, columns.chosen),
        rejected=_answer(fields, columns.rejected),
        probability=probability(fields, columns),
        line=line,
    )


def _answer(fields: Mapping[str, Any], column: str) -> str:
    # An answer of white space is told as an empty answer, like one of another format.
    return "" if fields.get(column) == "" else raw_rows.verbatim(fields, column)


SPEAKERS = {"user": "Human", "assistant": "Assistant"}
ROLES_OF_SPEAKERS = {name: role for role, name in SPEAKERS.items()}
_TURN = re.compile(rf"\n\n({'|'.join(ROLES_OF_SPEAKERS)}):")


def render_transcript(turns: Sequence[Turn]) -> str:
    r"""The turns as a transcript that ends where the assistant is to speak.

    A system message stands before the first turn. `[user: Hi]` gives
    "\n\nHuman: Hi\n\nAssistant:", to which " Hello!" is an answer.
    """
    spoken = [
        turn.content if turn.role == "system" else f"\n\n{SPEAKERS[turn.role]}: {turn.content}"
        for turn in turns
    ]
    return "".join([*spoken, f"\n\n{SPEAKERS['assistant']}:"])


def parse_transcript(text: str) -> list[Turn]:
    """The turns of a transcript, their texts stripped.

    Raises:
        RejectedError: it does not begin with a turn.
    """
    before, *parts = _TURN.split(text)
    if before.strip() or not parts:
        raise RejectedError(f"no transcript: expected a text that begins with a turn, found "
                            f"{text!r:.60}")  # fmt: skip
    return [
        Turn(ROLES_OF_SPEAKERS[name], content.strip())
        for name, content in zip(parts[::2], parts[1::2], strict=True)
    ]


def transcript_pair(fields: Mapping[str, Any], columns: Columns, line: int) -> RawPreference:
    """The pair that a row holds.

    Raises:
        RejectedError: a transcript is malformed, or they share other than all but the last turn.
    """
    chosen, rejected = (
        parse_transcript(raw_rows.verbatim(fields, column))
        for column in (columns.chosen, columns.rejected)
    )
    turns, answers = split_last(chosen, rejected)
    return RawPreference(
        turns=turns,
        plain_prompt=render_transcript(turns),
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


ROLES = ("system", "user", "assistant")


def chat_pair(fields: Mapping[str, Any], columns: Columns, line: int) -> RawPreference:
    """The pair that a row holds.

    Raises:
        RejectedError: a message is malformed, or the conversations share other than all but the
            last message.
    """
    before = [] if columns.prompt is None else _turns(fields, columns.prompt)
    chosen, rejected = (
        [*before, *_turns(fields, column)] for column in (columns.chosen, columns.rejected)
    )
    turns, answers = split_last(chosen, rejected)
    return RawPreference(
        turns=turns,
        plain_prompt=render_transcript(turns),
        plain_lead=" ",
        chosen=answers[0],
        rejected=answers[1],
        probability=probability(fields, columns),
        line=line,
    )


def _turns(fields: Mapping[str, Any], column: str) -> list[Turn]:
    messages = fields.get(column)
    if not isinstance(messages, list) or not messages:
        raise RejectedError(
            f"no conversation: '{column}' should be a list of messages and is {messages!r:.60}"
        )
    return [_turn(message, column) for message in messages]


def _turn(message: Any, column: str) -> Turn:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in ROLES:
        raise RejectedError(
            f"no message: expected a role of {', '.join(ROLES)} and a content in '{column}', "
            f"found {message!r:.60}"
        )
    # An empty answer is told as such, like one of another format.
    content = "" if message.get("content") == "" else raw_rows.text(message, "content")
    return Turn(role, content)
