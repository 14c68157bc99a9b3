"""Progress of a stage run: snapshots that its seed runs send, and the lines that show them.

A terminal has one line per seed, updated each second; a log has the same lines now and then:

      seed 0  12/32 steps  40 s left  reward 0.71  KL 0.012  length 24

At the end one line remains: stage, seconds, and its headline numbers, averaged over the seeds.
"""

import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from stages.runtime import terminal

SECONDS_BETWEEN_SNAPSHOTS = 1.0
SECONDS_BETWEEN_LINES = (15.0, 300.0)
"""Shortest and longest interval between lines of a log; between these bounds it is a tenth of the
time since the stage began."""
MODE, RECORDS, SEPARATOR = "POSTTRAIN_PROGRESS", "records", "\x1e"
"""With POSTTRAIN_PROGRESS=records every snapshot is a line of JSON after a record separator, for
`flows.local`, which shows several stages on one terminal."""
SECONDS_OF_A_LONG_ITEM = 3.0
SHARE = re.compile(r"(.* )?(accuracy|right|truncated|agreement|success)")
"""Names of numbers that are shown in percent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Progress of a seed run at one time."""

    label: str = ""
    """Name of the part of the work."""
    done: int = 0
    total: int | None = None
    unit: str = ""
    within: Mapping[str, int] = field(default_factory=dict)
    """Unit -> amount done of the item in progress, such as tokens."""
    seconds_left: float | None = None
    """Estimate for all parts, from the rate of this process; None: unknown."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Metrics that are shown, such as the reward."""

    def describe(self) -> str:
        """Line such as `heldout 12/32 steps  40 s left  reward 0.71`."""
        if not (self.label or self.unit or self.total):
            return ", ".join(f"{n:,} {unit}" for unit, n in self.within.items()) or "starts"
        count = f"{self.done:,}" + ("" if self.total is None else f"/{self.total:,}")
        items = f"{self.label} {count} {self.unit}".strip()
        parts = [", ".join([items, *(f"{n:,} {unit}" for unit, n in self.within.items())])]
        if self.seconds_left is not None and self.done != self.total:
            parts.append(f"{describe_seconds(self.seconds_left)} left")
        return "  ".join([*parts, *map(describe_number, self.numbers.items())])


Show = Callable[[Snapshot], None]


def describe_seconds(seconds: float) -> str:
    """Duration such as `40 s`, `12 min` or `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def describe_number(item: tuple[str, float]) -> str:
    """Name and number: `reward 0.71`, `right 64.0 %`, `generated tokens 41,000`."""
    name, value = item[0].replace("_", " "), item[1]
    if SHARE.fullmatch(name):
        return f"{name} {100 * value:.1f} %"
    return f"{name} {value:,.0f}" if abs(value) >= 1000 else f"{name} {value:.3g}"


class Progress:
    """Progress of a seed run: its work changes it, and a thread shows it each second."""

    def __init__(self) -> None:
        self._unit, self._after = "", None
        self.begin()

    def begin(
        self,
        label: str = "",
        *,
        unit: str = "",
        total: int | None = None,
        done: int = 0,
        after: int | None = None,
        read_counts: Callable[[], Mapping[str, int]] = dict[str, int],
    ) -> None:
        """Begin a part of the work, of which an earlier process did `done` items.

        `after`: number of items, of the same unit, in the parts that follow. A part with a label is
        one of several: without this number the time left is unknown. `read_counts` returns
        unit -> amount for units that advance within an item, such as tokens; if `unit` is among
        them, these are the same items.
        """
        self._advanced = time.monotonic()
        if after is not None and unit == self._unit and self._after is not None:
            self._worked += self._done - self._start
        else:
            self._worked, self._begun = 0, self._advanced
        self._after = after if label else after or 0
        self._label, self._unit, self._total, self._done = label, unit, total, done
        self._read_counts, self._counts = read_counts, dict(read_counts())
        self._recent: dict[str, deque[float]] = {}
        self.restart()

    def restart(self) -> None:
        """Leave items done so far out of the rate: an earlier process did them."""
        self._start = self._done

    def advance(self, done: int, numbers: Mapping[str, float] | None = None) -> None:
        """Set the number of items done; `numbers` of this item are averaged with recent ones."""
        self._done, self._counts = done, dict(self._read_counts())
        self._advanced = time.monotonic()
        for name, value in (numbers or {}).items():
            size = min(10, 1 + done // 10)
            values = self._recent.get(name, ())
            self._recent[name] = deque([*values, value], maxlen=size)

    def watch(self, numbers: Mapping[str, int | float]) -> None:
        """Show numbers for all work so far."""
        for name, value in numbers.items():
            self._recent[name] = deque([float(value)], maxlen=1)

    def snapshot(self) -> Snapshot:
        """Progress at this time."""
        counts = dict(self._read_counts())  # the work may add a key meanwhile
        within = {unit: n - self._counts.get(unit, 0) for unit, n in counts.items()}
        done = self._done + within.pop(self._unit, 0)
        if self._total is not None:
            done = min(done, self._total)
        now, seconds_left = time.monotonic(), None
        seconds, is_long = now - self._begun, now - self._advanced > SECONDS_OF_A_LONG_ITEM
        worked = self._worked + done - self._start
        if self._total is not None and self._after is not None and worked:
            seconds_left = (self._total - done + self._after) * seconds / worked
        numbers = {name: fmean(values) for name, values in list(self._recent.items())}
        return Snapshot(
            label=self._label, done=done, total=self._total, unit=self._unit,
            within={unit: n for unit, n in within.items() if n > 0 and is_long},
            seconds_left=seconds_left, numbers=numbers,
        )  # fmt: skip

    @contextmanager
    def shown(self, show: Show) -> Iterator[None]:
        """Context in which a thread shows a snapshot each second, and the last one at the end."""
        ended = threading.Event()

        def show_signs() -> None:
            while not ended.wait(SECONDS_BETWEEN_SNAPSHOTS):
                show(self.snapshot())

        thread = threading.Thread(target=show_signs, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        show(self.snapshot())


class Display:
    """The lines of a stage run."""

    def __init__(self, stage: str, mode: Literal["terminal", "records", "lines", "quiet"]) -> None:
        self._stage, self._mode = stage, mode
        self._snapshots: dict[int | None, Snapshot] = {}
        self._begun = self._shown = time.monotonic()
        self.headline: Mapping[str, float] = {}
        """Numbers of the closing line."""

    def update(self, seed: int | None, snapshot: Snapshot) -> None:
        """Store the snapshot of a seed, and show the progress of all seeds if it is time.

        `seed`: None if the work is the same for all seeds.
        """
        self._snapshots[seed] = snapshot
        now = time.monotonic()
        first, last = SECONDS_BETWEEN_LINES
        pause = min(last, max(first, (now - self._begun) / 10))
        if self._mode in ("terminal", "records"):
            pause = SECONDS_BETWEEN_SNAPSHOTS / 2
        if now - self._shown < pause:
            return
        self._shown = now
        lines = [
            ("" if number is None else f"seed {number}  ") + latest.describe()
            for number, latest in sorted(self._snapshots.items(), key=lambda item: item[0] or 0)
        ]
        if self._mode == "terminal":
            terminal.draw([f"  {line}" for line in lines])
        elif self._mode == "records":
            self._write_record({"lines": lines})
        elif self._mode == "lines":
            clock = time.strftime("%H:%M:%S")
            terminal.write("\n".join(f"{clock} {self._stage}  {line}" for line in lines))

    def erase(self) -> None:
        """Erase the lines of a stage that failed or was asked to end."""
        if self._mode == "terminal":
            terminal.erase()

    def end(self) -> None:
        """Write that the stage is done, its seconds and its headline numbers."""
        seconds = describe_seconds(time.monotonic() - self._begun)
        numbers = "  ".join(map(describe_number, self.headline.items()))
        if self._mode == "records":
            self._write_record({"numbers": numbers})
        elif self._mode != "quiet":
            name = terminal.green(self._stage)
            terminal.write(f"{name}  done in {seconds}  {numbers}".rstrip())

    def _write_record(self, content: Mapping[str, Any]) -> None:
        terminal.write(f"{SEPARATOR}{json.dumps({'stage': self._stage, **content})}")


def make_display(stage: str, *, is_shown: bool, is_quiet: bool) -> Display:
    """The display of a stage run that suits its output: terminal, records or log."""
    if not is_shown or is_quiet:
        return Display(stage, "quiet")
    if os.environ.get(MODE) == RECORDS:
        return Display(stage, "records")
    return Display(stage, "terminal" if terminal.is_terminal() else "lines")
