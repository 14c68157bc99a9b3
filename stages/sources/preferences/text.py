r"""Preferences as plain text: a prompt and two answers, each in a column of its own.

    {"prompt": "What is 2+2?\n", "chosen": "4", "rejected": "5"}

Without a chat template the prompt is read exactly as it is, white space included, and the
answers follow it directly: what a file of this project's own prompts needs.
"""

from collections.abc import Mapping
from typing import Any

from stages.records.preferences import RawPreference, Turn
from stages.sources import row_fields
from stages.sources.preferences.columns import Columns, probability
from stages.sources.quarantine import RejectedError


def pair(fields: Mapping[str, Any], columns: Columns, line: int) -> RawPreference:
    """The pair that a row holds.

    Raises:
        RejectedError: a column is missing, or holds no text.
    """
    if columns.prompt is None or not fields.get(columns.prompt):
        raise RejectedError(f"no common prompt: there is nothing in column {columns.prompt!r}")
    prompt = row_fields.verbatim(fields, columns.prompt)
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
    return "" if fields.get(column) == "" else row_fields.verbatim(fields, column)
