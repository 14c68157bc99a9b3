"""Preferences as conversations: lists of messages with a role and a content.

    {"chosen": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}],
     "rejected": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "No"}]}

Either both lists hold the whole conversation and share all but the last message, or a column
`prompt` holds what they share and each list only its answer.
"""

from collections.abc import Mapping
from typing import Any

from stages.records.preferences import RawPreference, Turn
from stages.sources import row_fields
from stages.sources.preferences import transcript
from stages.sources.preferences.columns import Columns, probability
from stages.sources.quarantine import RejectedError

ROLES = ("system", "user", "assistant")


def pair(fields: Mapping[str, Any], columns: Columns, line: int) -> RawPreference:
    """The pair that a row holds.

    Raises:
        RejectedError: a message is malformed, or the conversations share other than all but the
            last message.
    """
    before = [] if columns.prompt is None else _turns(fields, columns.prompt)
    chosen, rejected = (
        [*before, *_turns(fields, column)] for column in (columns.chosen, columns.rejected)
    )
    turns, answers = transcript.split_last(chosen, rejected)
    return RawPreference(
        turns=turns,
        plain_prompt=transcript.render(turns),
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
    content = "" if message.get("content") == "" else row_fields.text(message, "content")
    return Turn(role, content)
