"""The journal: every metric of a run, one JSON line per step, on disk as soon as it is known."""

import errno
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

Log = Callable[[int, Mapping[str, int | float]], None]
"""Function that writes the metrics of a step at once, given its index."""


TIMES = "time/"
"""Prefix of metrics that a second run would not repeat: only the run record has them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalRow:
    """The metrics of one step."""

    index: int
    time: float = 0.0
    """Seconds since 1970, when it was logged; 0 in a copy without times."""
    metrics: dict[str, float]


class Journal:
    """A journal being written, a whole line at a time."""

    def __init__(self, file: IO[bytes]) -> None:
        """Rows of an earlier attempt stay until the first new row, or for good (`go_on`)."""
        self._file, self.path, self.length = file, Path(file.name), 0

    def __call__(self, index: int, metrics: Mapping[str, int | float]) -> None:
        """See `Log`."""
        numbers = {name: float(value) for name, value in metrics.items()}
        row = JournalRow(index=index, time=time.time(), metrics=numbers)
        self._file.seek(self.length)
        self._file.truncate()
        line = json.dumps(asdict(row), sort_keys=True).encode() + b"\n"
        if self._file.write(line) != len(line):
            raise OSError(errno.ENOSPC, "no room for a row", str(self.path))
        self.length += len(line)

    def go_on(self, length: int) -> None:
        """Keep `length` bytes of an earlier attempt; the rows after them are written again."""
        assert self.length <= length <= self.path.stat().st_size, (self.path, length)
        self.length = length


@contextmanager
def writing(path: Path) -> Iterator[Journal]:
    """The journal at `path`, new or of an earlier attempt."""
    path.touch()
    with path.open("r+b", buffering=0) as file:
        journal = Journal(file)
        yield journal
        file.truncate(journal.length)


def copy_without_times(path: Path, target: Path) -> None:
    """Copy to `target` what a second run with the same inputs would repeat."""
    with target.open("w", encoding="utf-8") as file:
        for row in read_rows(path):
            metrics = {k: v for k, v in row.metrics.items() if not k.startswith(TIMES)}
            file.write(json.dumps({"index": row.index, "metrics": metrics}, sort_keys=True) + "\n")


def read_rows(path: Path) -> Iterator[JournalRow]:
    """Rows of a journal, without a last line that a kill left incomplete."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            return
        try:
            yield JournalRow(**json.loads(line))
        except (json.JSONDecodeError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number}: expected a journal row, found {line[:80]!r}. "
                f"Remove the file's folder and run the stage again."
            ) from error
