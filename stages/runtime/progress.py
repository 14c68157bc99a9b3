"""Progress of long work: a bar on a terminal, plain log lines elsewhere."""

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 10.0
MAX_NUMBERS = 4

ItemT = TypeVar("ItemT")


def track(items: Iterable[ItemT], *, total: int | None = None, label: str) -> Iterator[ItemT]:
    """Yield `items` unchanged and show how far they are.

    An item's `metrics` (a `Step` has them) are shown beside the count: the first four that
    are neither times nor counts of work.
    """
    if total is None and hasattr(items, "__len__"):
        total = len(items)  # pyright: ignore[reportArgumentType]
    if sys.stderr.isatty():
        yield from _bar(items, total=total, label=label)
    else:
        yield from _lines(items, total=total, label=label)


def _bar(items: Iterable[ItemT], *, total: int | None, label: str) -> Iterator[ItemT]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(label, total=total, numbers="")
        for item in items:
            yield item
            progress.update(task, advance=1, numbers=_numbers(item))


def _lines(items: Iterable[ItemT], *, total: int | None, label: str) -> Iterator[ItemT]:
    started = time.monotonic()
    last_line = float("-inf")
    count = 0
    numbers, said = "", 0

    def say() -> None:
        of_total = f"/{total}" if total is not None else ""
        seconds = time.monotonic() - started
        logger.info("%s %d%s, %.0f s  %s", label, count, of_total, seconds, numbers)

    for item in items:
        yield item
        count += 1
        numbers = _numbers(item)
        if time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
            say()
            last_line, said = time.monotonic(), count
    if count != said:
        say()


def _numbers(item: object) -> str:
    metrics = getattr(item, "metrics", None)
    if not isinstance(metrics, dict):
        return ""
    names = [name for name in metrics if not name.startswith(("time/", "work/"))][:MAX_NUMBERS]
    return "  ".join(f"{name} {metrics[name]:.4g}" for name in names)
