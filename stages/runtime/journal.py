"""The journal: every metric of a run, one JSON line a step, on disk as soon as it is known.

It is the truth about a run; a tracker shows a view of it.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The metrics of one step."""

    index: int
    time: float
    """Seconds since 1970, when it was logged."""
    metrics: dict[str, float]


class Journal:
    """Appends rows to a file, a whole line at a time."""

    def __init__(self, path: Path, *, resume_at: int = 0) -> None:
        """Keeps an earlier attempt's rows below index `resume_at`; the others come again."""
        kept = [row for row in read(path) if row.index < resume_at] if path.exists() else []
        partial = path.with_name(path.name + ".partial")
        with partial.open("w", encoding="utf-8") as file:
            file.writelines(_line(row) for row in kept)
        partial.replace(path)
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def log(self, index: int, metrics: Mapping[str, int | float]) -> None:
        """Write one row; its values become plain numbers."""
        numbers = {name: float(value) for name, value in metrics.items()}
        self._file.write(_line(Row(index=index, time=time.time(), metrics=numbers)))

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read(path: Path) -> Iterator[Row]:
    """The rows of a journal; a last line that a kill tore is left out.

    Raises:
        ValueError: a line other than the last is not a row.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            return
        try:
            yield Row(**json.loads(line))
        except (json.JSONDecodeError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: expected a journal row, found {line[:80]!r}. "
                f"Remove the file's folder and run the stage again."
            ) from error


def _line(row: Row) -> str:
    return json.dumps(asdict(row), sort_keys=True) + "\n"
