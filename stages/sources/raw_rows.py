"""Read the rows of a file, JSON lines or one JSON array, by the name's ending.

`.json` and `.json.gz` hold one array (as ProcessBench is published), whose elements are counted
from 1 in place of lines; anything else is read line by line, by raw_lines.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages.records.problems import BadRow
from stages.sources import raw_lines
from stages.sources.quarantine import bad_row


def read(path: Path) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
    """(number from 1, the object or why it is none) for every row.

    Raises:
        ValueError: the file is missing, empty or broken, or holds no array.
    """
    if path.name.endswith((".json", ".json.gz")):
        yield from _array(path)
    else:
        yield from raw_lines.read(path)


def _array(path: Path) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
    if not path.is_file():
        raise ValueError(
            f"{path}: expected a file with a JSON array, found none. Put it there or correct its "
            f"path in recipes.yaml."
        )
    try:
        content = path.read_bytes()
        rows = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: expected a JSON array ({error}). Copy the file again, or give it the ending "
            f".jsonl (.jsonl.gz) if it holds one object a line."
        ) from error
    if not isinstance(rows, list) or not rows:
        found = "an empty array" if isinstance(rows, list) else type(rows).__name__
        raise ValueError(f"{path}: expected a JSON array of objects, found {found}.")
    for number, row in enumerate(rows, start=1):
        if isinstance(row, dict):
            yield number, row
        else:
            reason = f"not an object: expected {{...}}, found {type(row).__name__}"
            yield number, bad_row(path.name, number, reason, json.dumps(row))
