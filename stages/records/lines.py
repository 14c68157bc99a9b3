"""JSON lines: one frozen dataclass instance per line, keys sorted, UTF-8."""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO, TypeVar

from stages.records.problems import OMITTED

RowT = TypeVar("RowT")


def write_lines(path: Path, rows: Iterable[Any]) -> int:
    """Write `rows` (dataclass instances) to `path`; returns their number."""
    num_rows = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_for_lines(path) as file:
        for row in rows:
            file.write(to_json_line(row))
            num_rows += 1
    return num_rows


def open_for_lines(path: Path) -> TextIO:
    """New file for JSON lines."""
    # A lone surrogate becomes its JSON escape, which is parsed as the same surrogate.
    return path.open("w", encoding="utf-8", errors="backslashreplace")


def to_json_line(row: Any) -> str:
    """JSON line of a row."""
    return json.dumps(to_dict(row), sort_keys=True, ensure_ascii=False) + "\n"


def to_dict(row: Any) -> dict[str, Any]:
    """Fields of a row by name, without those with `OMITTED` that are None."""
    return {
        field.name: value
        for field in dataclasses.fields(row)
        if (value := getattr(row, field.name)) is not None or OMITTED not in field.metadata
    }


def read_lines(path: Path, row_type: type[RowT]) -> Iterator[RowT]:
    """Rows of a file that a stage wrote; a ValueError if one is of another type."""
    number = 0
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                number += 1
                yield row_type(**json.loads(line))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path}, line {number}: expected a {row_type.__name__} row, found {error}. "
            f"Rerun the stage that writes this file."
        ) from error
