"""The journal: every metric of a run, one JSON line a step, on disk as soon as it is known.

It is the truth about a run; a tracker shows a view of it.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

Log = Callable[[int, Mapping[str, int | float]], None]
"""Write the metrics of a step, given its index, at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The metrics of one step."""

    index: int
    time: float
    """Seconds since 1970, when it was logged."""
    metrics: dict[str, float]


@contextmanager
def writing(path: Path) -> Iterator[Log]:
    """A new journal, a whole line at a time; an earlier attempt's rows come again."""
    with path.open("w", encoding="utf-8", buffering=1) as file:

        def log(index: int, metrics: Mapping[str, int | float]) -> None:
            numbers = {name: float(value) for name, value in metrics.items()}
            row = Row(index=index, time=time.time(), metrics=numbers)
            file.write(json.dumps(asdict(row), sort_keys=True) + "\n")

        yield log


def read(path: Path) -> Iterator[Row]:
    """The rows of a journal; a last line that a kill tore is left out."""
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
