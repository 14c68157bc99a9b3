"""Take the fields of a record out of a row whose columns may hold anything."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stages.records.problems import BadRow
from stages.sources.quarantine import RejectedError, bad_row

BuiltT = TypeVar("BuiltT")


def built_or_bad_row(
    fields: Mapping[str, Any],
    build: Callable[[Mapping[str, Any]], BuiltT],
    *,
    file: str,
    line: int,
) -> BuiltT | BadRow:
    """`build(fields)`, or the record of why that was `RejectedError`."""
    try:
        return build(fields)
    except RejectedError as error:
        content = json.dumps(dict(fields), ensure_ascii=False, default=str)
        return bad_row(file, line, str(error), content)


def text(fields: Mapping[str, Any], column: str) -> str:
    """The text in `column`, stripped.

    Raises:
        RejectedError: the column is missing or empty, or holds something else.
    """
    return verbatim(fields, column).strip()


def verbatim(fields: Mapping[str, Any], column: str) -> str:
    """The text in `column` as it is, white space at its ends included.

    Raises:
        RejectedError: as `text`.
    """
    value = _present(fields, column)
    if not isinstance(value, str):
        raise RejectedError(f"wrong type: '{column}' should be text and is {value!r:.60}")
    if not value.strip():
        raise RejectedError(f"empty {column}: '{column}' holds no text")
    return _unicode(value, column)


def optional_text(fields: Mapping[str, Any], column: str | None) -> str | None:
    """As `text`; None where the column is absent, null or not asked for."""
    if column is None or fields.get(column) is None:
        return None
    return text(fields, column)


def answer(fields: Mapping[str, Any], column: str) -> str:
    """The answer in `column`: text or a finite number.

    Raises:
        RejectedError: it is missing or empty, NaN or infinite, or something else.
    """
    value = _present(fields, column)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise RejectedError(
            f"wrong type: '{column}' should be text or a number and is {value!r:.60}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise RejectedError(f"not a number: '{column}' is {value}")
    if isinstance(value, int) and value.bit_length() > 1000:
        raise RejectedError(f"answer does not parse: '{column}' has {value.bit_length()} bits")
    return str(value) if not isinstance(value, str) else text(fields, column)


def identifier(fields: Mapping[str, Any], column: str | None, default: str) -> str:
    """The row's own id, text or whole number, else `default`."""
    value = fields.get(column) if column is not None else None
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).strip():
        raise RejectedError(f"wrong type: '{column}' should be text or whole and is {value!r:.60}")
    return _unicode(str(value), column or "id")


def _present(fields: Mapping[str, Any], column: str) -> Any:
    if column not in fields:
        found = ", ".join(sorted(map(str, fields))) or "none"
        raise RejectedError(
            f"missing column: '{column}' is not among the row's columns ({found:.200})"
        )
    if fields[column] is None:
        raise RejectedError(f"empty {column}: '{column}' is null")
    return fields[column]


def _unicode(value: str, column: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RejectedError(f"not Unicode: '{column}' holds half a surrogate pair") from None
    return value
