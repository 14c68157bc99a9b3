"""Display of a run of several stages: live lines on a terminal, elsewhere a log.

On a terminal each finished stage has one line, with its seconds and numbers; below are the running
stages, redrawn, with one line per seed. Elsewhere every line of a stage is written with the stage's
name before it.
"""

import re
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from flows.dvc_internals import CHATTER, LOCK_LINES
from flows.execute import Result, StageOutcome

STYLES = {
    StageOutcome.EXECUTED: "green",
    StageOutcome.RESTORED: "cyan",
    StageOutcome.SKIPPED: "dim",
    StageOutcome.FAILED: "bold red",
    StageOutcome.BLOCKED: "yellow",
}
REDRAWS_PER_SECOND = 2


class StageLines:
    """Lines of a run, safe for several threads. A closed terminal or pipe is not an error."""

    def __init__(self, console: Console, *, is_quiet: bool) -> None:
        self._console, self._is_quiet = console, is_quiet
        self.is_live = console.is_terminal and not console.is_dumb_terminal and not is_quiet
        self._begun: dict[str, float] = {}
        self._progress: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._live = Live(
            console=console, get_renderable=self._draw, transient=True,
            refresh_per_second=REDRAWS_PER_SECOND,
        )  # fmt: skip

    def __enter__(self) -> "StageLines":
        """Draw from now on."""
        if self.is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Erase the running stages."""
        if self.is_live:
            with suppress(OSError):
                self._live.stop()

    def begin(self, stage: str) -> None:
        """Show a stage as running."""
        with self._lock:
            self._begun[stage] = time.monotonic()

    def log(self, stage: str, line: str) -> None:
        """Write a line of a stage's output; on a terminal without DVC's own."""
        is_noise = LOCK_LINES.match(line) or (self.is_live and CHATTER.match(line))
        if not is_noise and not self._is_quiet:
            self._write(Text(f"{stage} | {line}"))

    def show(self, stage: str, record: dict[str, Any]) -> None:
        """Show the progress of a stage: `lines`, one per seed, or, at its end, its `numbers`."""
        with self._lock:
            self._progress[stage] = record

    def end(self, stage: str, result: Result) -> None:
        """Show a stage as ended; on a terminal, with a line on its outcome."""
        with self._lock:
            self._begun.pop(stage, None)
            numbers = str(self._progress.pop(stage, {}).get("numbers", ""))
        if self.is_live and result.outcome is not StageOutcome.SKIPPED:
            parts = [stage, f"{result.seconds:.0f} s", numbers, result.reason]
            words = Text(f"{result.outcome.value:<8}", style=STYLES[result.outcome])
            self._write(words.append("  ".join(["", *filter(None, parts)]), style="default"))

    def _write(self, line: Text) -> None:
        with suppress(OSError):
            if self.is_live:
                self._console.print(line, soft_wrap=True)
            else:
                sys.stdout.write(f"{line.plain}\n")
                sys.stdout.flush()

    def _draw(self) -> Group:
        """The running stages, with as many fields of each line as fit the terminal.

        Two spaces separate fields.
        """
        with self._lock:
            lines: list[Text] = []
            for stage, begun in self._begun.items():
                seconds = time.monotonic() - begun
                lines.append(Text(f"{stage}  {seconds:.0f} s", style="bold"))
                seeds = self._progress.get(stage, {}).get("lines", ())
                lines += [Text(f"  {line}") for line in seeds]
        for line in lines:
            fits = re.match(rf".{{0,{self._console.width}}}(?=  |$)", line.plain)
            line.plain = fits[0] if fits and fits[0].strip() else line.plain
            line.no_wrap, line.overflow = True, "ellipsis"
        return Group(*lines)
