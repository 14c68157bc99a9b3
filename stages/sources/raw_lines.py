"""Read a file of JSON objects, one a line, that anyone may have written.

Plain or gzip, by the name's ending. One bad line spoils only itself: it comes out as a
`BadRow` and reading goes on.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages.records.problems import BadRow
from stages.sources.quarantine import bad_row

MAX_LINE_BYTES = 2**20
"""A longer line is over-long: rejected without being decoded."""


def read(path: Path) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
    """(line number from 1, the object or why it is none) for every line that is not blank.

    Raises:
        ValueError: the file is missing, empty, or a gzip file that is cut or broken.
    """
    if not path.is_file():
        raise ValueError(
            f"{path}: expected a file of JSON lines, found none. Put it there or correct "
            f"its path in params.yaml or recipes.yaml."
        )
    num_rows = 0
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            for number, line in _numbered(file):
                if line is None or line.strip():
                    num_rows += 1
                    yield number, _parse(path.name, number, line)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path}: not a whole gzip file ({error}). Copy it again, or drop the ending .gz "
            f"if it is not compressed."
        ) from error
    if num_rows == 0:
        raise ValueError(
            f"{path}: the file is empty; expected one JSON object a line. Fill it or correct "
            f"its path in params.yaml or recipes.yaml."
        )


def _numbered(file: io.BufferedIOBase) -> Iterator[tuple[int, bytes | None]]:
    """Lines with their numbers; None for an over-long one, whose rest is skipped."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) <= MAX_LINE_BYTES:
            yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES)
        yield number, None


def _parse(file: str, number: int, line: bytes | None) -> dict[str, Any] | BadRow:
    if line is None:
        return bad_row(file, number, f"over-long row: more than {MAX_LINE_BYTES} bytes", "")
    # A byte order mark is harmless at the start of a file.
    line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    content = line.decode("utf-8", "replace").strip()
    try:
        fields = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: byte {error.start + 1} of the line is 0x{line[error.start]:02x}"
        return bad_row(file, number, reason, content)
    except (ValueError, RecursionError) as error:
        return bad_row(file, number, f"not JSON: {error}", content)
    if not isinstance(fields, dict):
        reason = f"not an object: expected {{...}}, found {type(fields).__name__}"
        return bad_row(file, number, reason, content)
    return fields
