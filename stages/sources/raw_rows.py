"""Fields of a row of untrusted data, read with checks of their types.

A RejectedError says what was expected and what was found; `parse_row` makes a `BadRow` of it.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stages.records.problems import BadRow
from stages.sources import columns
from stages.sources.containers import DECIMAL_COMMA, RawRow
from stages.sources.quarantine import RejectedError, bad_row

ParsedT = TypeVar("ParsedT")
PLACEHOLDERS = frozenset({
    "n/a", "none", "null", "unknown", "notfound", "not found", "not available", "proof",
    "no answer", "tbd", "todo", "see solution", "[]", "[placeholder]",
})  # fmt: skip
"""Texts, in any case, in place of a missing gold answer; Numina has `proof`, `notfound`."""


def parse_row(
    row: RawRow, from_fields: Callable[[Mapping[str, Any], int, str], ParsedT]
) -> ParsedT | BadRow:
    """`from_fields(fields, line, file)` of a row, or a record of its `RejectedError`."""
    try:
        return from_fields(row.fields, row.line, row.file)
    except RejectedError as error:
        content = json.dumps(row.fields, ensure_ascii=False, default=str)
        return bad_row(row.file, row.line, str(error), content)


NAMES = {dict: "an object", list: "a list", str: "text"}


def check_type(value: Any, kind: type[ParsedT], what: str) -> ParsedT:
    """`value`; RejectedError, with the name `what`, if it is of another type."""
    if not isinstance(value, kind):
        raise RejectedError(f"wrong type: {what} should be {NAMES[kind]} and is {value!r:.60}")
    return value


def read_list(fields: Mapping[str, Any], column: str, reason: str) -> list[Any]:
    """The list in `column`; RejectedError for `reason` if it is missing or empty."""
    value = fields.get(column)
    if not isinstance(value, list) or not value:
        raise RejectedError(f"{reason}: '{column}' should be a filled list and is {value!r:.60}")
    return value


def read_text(fields: Mapping[str, Any], column: str) -> str:
    """The text in `column`, stripped; RejectedError if it is missing or empty."""
    return read_verbatim(fields, column).strip()


def read_verbatim(fields: Mapping[str, Any], column: str) -> str:
    """As `read_text`, without stripping."""
    value = fields.get(column, columns.MISSING)
    check_filled(value, column, fields, f"empty {column}")
    value = check_text(value, column)
    if not value.strip():
        raise RejectedError(f"empty {column}: '{column}' holds no text")
    return value


def check_filled(value: Any, column: str, fields: Mapping[str, Any], reason: str) -> None:
    """Raise RejectedError if a row lacks the column of the value, or, for `reason`, has null."""
    if value is columns.MISSING:
        available = ", ".join(sorted(map(str, fields))) or "none"
        raise RejectedError(
            f"missing column: '{column}' is not among the row's columns ({available:.200})"
        )
    if value is None:
        raise RejectedError(f"{reason}: '{column}' is null")


def check_text(value: Any, what: str) -> str:
    """A text of valid Unicode, not stripped; it may be empty."""
    return _unicode(check_type(value, str, f"'{what}'"), what)


def check_answer(value: Any, column: str, *, is_choice: bool = False) -> str:
    """A gold answer: text, a finite number, true or false, or a list of one of these.

    RejectedError for a placeholder and for a number with a decimal comma, unless they are choices:
    no completion matches them.
    """
    if isinstance(value, str) and value.lstrip().startswith('["'):
        value = columns.parse_nested(value)
    value = columns.single(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if not value.strip():
            raise RejectedError(f"empty answer: '{column}' holds no text")
        if not is_choice:
            _check_gold(value.strip(), column)
        return _unicode(value.strip(), column)
    if not isinstance(value, int | float):
        several = (
            f": if any of them is right, write `a or b`; else name one, as {column}.0"
            if isinstance(value, list) and len(value) > 1
            else ""
        )
        raise RejectedError(
            f"wrong type: '{column}' should be a single text or number, is {value!r:.60}{several}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise RejectedError(f"not a number: '{column}' is {value}")
    return str(value)


def _check_gold(text: str, column: str) -> None:
    """Raise RejectedError for a text that no completion matches."""
    if text.lower() in PLACEHOLDERS:
        template = column if "{" in column else f"{{{column}}}"
        raise RejectedError(
            f"placeholder: expected a gold answer in '{column}', found {text!r}; if such words "
            f"are answers, name the column with a point, as columns: {{answer: '{template}.'}}"
        )
    number = DECIMAL_COMMA.fullmatch(text)
    # Without dots, unit or currency, `1,5` may be a list of two, and `1,500` a number of thousands.
    has_unit = number is not None and bool(number["currency"] or number["unit"])
    if number is not None and (number["thousands"] or (has_unit and len(number["decimals"]) < 3)):
        raise RejectedError(
            f"decimal comma: expected a number with a point in '{column}', found {text!r:.60}; "
            f"write it as 1234.5"
        )


def check_id(value: Any, column: str, default: str) -> str:
    """The id of a row, text or integer, else `default`."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).strip():
        raise RejectedError(f"wrong type: '{column}' should be text or whole, is {value!r:.60}")
    return _unicode(str(value), column)


def _unicode(value: str, column: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RejectedError(f"not Unicode: '{column}' holds half a surrogate pair") from None
    return value
