"""Read rows that anyone may have written, and take the fields of a record out of them.

A file holds JSON objects, one a line, or one JSON array, by its name's ending: `.json` and
`.json.gz` hold one array (as ProcessBench is published), whose elements are counted from 1;
anything else is JSON lines. Plain or gzip, by the first bytes. A bad row comes out as a `BadRow`.
"""

import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import Any, TypeVar

from stages.records.problems import BadRow
from stages.sources.quarantine import RejectedError, bad_row

MAX_LINE_BYTES = 2**20
"""A longer line is rejected without being decoded."""
NO_OBJECT = "not an object: expected {{...}}, found {}"
BROKEN = gzip.BadGzipFile, EOFError, zlib.error  # a gzip file that is cut or none
Rows = Iterator[tuple[int, dict[str, Any] | BadRow]]
"""(number from 1, the object or why it is none) of each row."""


def read_lines(path: Path) -> Rows:
    """Every line that is not blank; a ValueError if the file is missing, empty or broken."""
    num_rows = 0
    try:
        with _open(path) as file:
            for number, line in _numbered(file):
                if line is None or line.strip():
                    num_rows += 1
                    yield number, _parse(path.name, number, line)
    except BROKEN as error:
        raise ValueError(
            f"{path}: expected a whole gzip file, found a broken one ({error}). Copy it again."
        ) from error
    if num_rows == 0:
        raise ValueError(f"{path}: the file is empty; expected a JSON object a line. Fill it.")


def _open(path: Path) -> BufferedIOBase:
    if not path.is_file():
        raise ValueError(
            f"{path}: expected a file of JSON lines (.jsonl) or with a JSON array (.json), found "
            f"none. Put it there or correct its path in params.yaml or in the recipe."
        )
    with path.open("rb") as file:
        start = file.read(2)
    if start in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError(f"{path}: expected UTF-8, found UTF-16. Save it as UTF-8.")
    return gzip.open(path) if start == b"\x1f\x8b" else path.open("rb")


def _numbered(file: BufferedIOBase) -> Iterator[tuple[int, bytes | None]]:
    """Lines with their numbers; None for an over-long one, whose rest is skipped."""
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1):
        rest = line if len(line) > MAX_LINE_BYTES else b""
        yield number, None if rest else line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(MAX_LINE_BYTES)


def _parse(file: str, number: int, line: bytes | None) -> dict[str, Any] | BadRow:
    if line is None:
        return bad_row(file, number, f"over-long row: more than {MAX_LINE_BYTES} bytes", "")
    # A byte order mark is harmless at the start of a file.
    line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    try:
        fields = json.loads(line.decode("utf-8"), object_pairs_hook=_unique)
        if isinstance(fields, dict):
            return fields
        reason = NO_OBJECT.format("null" if fields is None else type(fields).__name__)
        reason += " (a file that is one array has the ending .json)" * isinstance(fields, list)
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte {error.start + 1} of the line is 0x{line[error.start]:02x}"
    except (ValueError, RecursionError) as error:
        # Lines are counted from this one, and what follows a semicolon is for programmers.
        message, shown = re.split(r"( at)?: line|;", str(error))[0], line.strip()[:40]
        message = f"not JSON: {message}, in {shown.decode('utf-8', 'replace')!r}"
        reason = str(error) if isinstance(error, RejectedError) else message
    return bad_row(file, number, reason, line.decode("utf-8", "replace").strip())


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; RejectedError where one of two values of a key would be lost."""
    if len(fields := dict(pairs)) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise RejectedError(f"duplicate key: {twice!r:.60} stands twice in one object")
    return fields


def read_rows(path: Path) -> Rows:
    """Every line, or element of the array; a ValueError as above, or if there is no array."""
    if not path.name.endswith((".json", ".json.gz")):
        yield from read_lines(path)
        return
    file = _open(path)
    try:
        with file:
            rows = json.load(file, object_pairs_hook=_unique)
    except (*BROKEN, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: expected a JSON array ({error}). Copy the file again, or give it the ending "
            f".jsonl (.jsonl.gz) if it holds one object a line."
        ) from error
    if not isinstance(rows, list) or not rows:
        kind = "an empty array" if isinstance(rows, list) else type(rows).__name__
        raise ValueError(f"{path}: expected a JSON array of objects, found {kind}.")
    for number, row in enumerate(rows, start=1):
        if isinstance(row, dict):
            yield number, row
        else:
            reason = NO_OBJECT.format(type(row).__name__)
            yield number, bad_row(path.name, number, reason, json.dumps(row))


def load_hub_rows(path: str, name: str | None, revision: str | None, split: str) -> Rows:
    """A split of a hub data set, or of a folder of its files; a ValueError if there is none."""
    import datasets
    from datasets.exceptions import DatasetsError

    try:
        loaded = datasets.load_dataset(path, name, revision=revision, split=split)
    except (DatasetsError, OSError, ValueError) as error:
        where = "folder" if Path(path).is_dir() else "hub data set"
        raise ValueError(
            f"cannot read split '{split}' of the {where} '{path}': {error}. Check `data.source` in "
            f"params.yaml; without a way to the hub, save the data set to a folder and name that."
        ) from error
    if len(loaded) == 0:
        raise ValueError(f"split '{split}' of '{path}' is empty. Name another one.")
    for line, row in enumerate(loaded, start=1):
        yield line, dict(row)


ParsedT = TypeVar("ParsedT")


def parse_rows(
    rows: Rows, from_fields: Callable[[Mapping[str, Any], int], ParsedT], file: str
) -> Iterator[ParsedT | BadRow]:
    """`from_fields(fields, line)` of each row, or the record of why that was `RejectedError`."""
    for line, row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        try:
            yield from_fields(row, line)
        except RejectedError as error:
            yield bad_row(file, line, str(error), json.dumps(row, ensure_ascii=False, default=str))


NAMES = {dict: "an object", list: "a list", str: "text"}


def check_type(value: Any, kind: type[ParsedT], what: str) -> ParsedT:
    """`value`, which RejectedError calls `what` where it is of another type."""
    if not isinstance(value, kind):
        raise RejectedError(f"wrong type: {what} should be {NAMES[kind]} and is {value!r:.60}")
    return value


def read_list(fields: Mapping[str, Any], column: str, reason: str) -> list[Any]:
    """The list in `column`; RejectedError for this reason where there is none or an empty one."""
    value = fields.get(column)
    if not isinstance(value, list) or not value:
        raise RejectedError(f"{reason}: '{column}' should be a filled list and is {value!r:.60}")
    return value


def read_share(fields: Mapping[str, Any], column: str, reason: str) -> float:
    """The number from 0 to 1 in `column`; RejectedError for this reason where there is none."""
    value = fields.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise RejectedError(f"{reason}: '{column}' should be from 0 to 1 and is {value!r:.60}")
    return float(value)


def read_text(fields: Mapping[str, Any], column: str) -> str:
    """The text in `column`, stripped; RejectedError where there is none."""
    return read_verbatim(fields, column).strip()


def read_verbatim(fields: Mapping[str, Any], column: str) -> str:
    """As `text`, white space at its ends included."""
    value = check_type(_present(fields, column), str, f"'{column}'")
    if not value.strip():
        raise RejectedError(f"empty {column}: '{column}' holds no text")
    return _unicode(value, column)


def read_maybe_empty(fields: Mapping[str, Any], column: str) -> str:
    """As `read_verbatim`; an empty text is one, for what finds nothing said tells so itself."""
    return "" if fields.get(column) == "" else read_verbatim(fields, column)


def read_optional_text(fields: Mapping[str, Any], column: str | None) -> str | None:
    """As `text`; None where the column is absent, null or not asked for."""
    return None if column is None or fields.get(column) is None else read_text(fields, column)


def read_answer(fields: Mapping[str, Any], column: str) -> str:
    """The answer in `column`: text or a finite number, else RejectedError."""
    value = _present(fields, column)
    if isinstance(value, str):
        return read_text(fields, column)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RejectedError(f"wrong type: '{column}' should be text or number, is {value!r:.60}")
    if isinstance(value, float) and not math.isfinite(value):
        raise RejectedError(f"not a number: '{column}' is {value}")
    if isinstance(value, int) and value.bit_length() > 1000:
        raise RejectedError(f"answer does not parse: '{column}' has {value.bit_length()} bits")
    return str(value)


def read_id(fields: Mapping[str, Any], column: str | None, default: str) -> str:
    """The row's own id, text or whole number, else `default`."""
    value = fields.get(column) if column is not None else None
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).strip():
        raise RejectedError(f"wrong type: '{column}' should be text or whole, is {value!r:.60}")
    return _unicode(str(value), column or "id")


def _present(fields: Mapping[str, Any], column: str) -> Any:
    if column not in fields:
        columns = ", ".join(sorted(map(str, fields))) or "none"
        message = f"'{column}' is not among the row's columns ({columns:.200})"
        raise RejectedError(f"missing column: {message}")
    if fields[column] is None:
        raise RejectedError(f"empty {column}: '{column}' is null")
    return fields[column]


def _unicode(value: str, column: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RejectedError(f"not Unicode: '{column}' holds half a surrogate pair") from None
    return value
