"""Text on a terminal or in a log: escaped, cut to the width, without an error if either is closed.

Redrawn lines leave the cursor at their beginning (`draw`). Any other text, of this process or one
that it forked, erases them first and takes their place.
"""

import errno
import io
import multiprocessing
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ERASE = "\x1b[J"
"""Erases everything after the cursor."""
UP = "\x1b[A"
GONE = frozenset({errno.EPIPE, errno.EIO})
"""Errors of a pipe whose reader has ended, and of a terminal that was closed."""


def escaped(text: str) -> str:
    """`text` with Python's escapes for control characters, which a terminal would obey."""
    shown = (char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)
    return text if text.isprintable() else "".join(shown)


def is_terminal() -> bool:
    """Whether the standard error is a terminal on which lines can be redrawn."""
    with suppress(OSError):
        return os.isatty(2) and os.environ.get("TERM") not in ("dumb", "unknown")
    return False


def green(text: str) -> str:
    """The text in green if the standard error is a terminal and NO_COLOR is not set."""
    return f"\x1b[32m{text}\x1b[0m" if is_terminal() and not os.environ.get("NO_COLOR") else text


def erase() -> None:
    """Erase the drawn lines of any process, if there are any.

    After Ctrl-C they begin with the terminal's `^C`.
    """
    if is_terminal():
        with suppress(OSError):
            os.write(2, f"\r{ERASE}".encode())


def draw(lines: Sequence[str]) -> None:
    """Replace the drawn lines; no line wraps, and none is below the screen.

    Two spaces separate the fields of a line; a field that does not fit is left out.
    """
    with suppress(OSError):  # a closed terminal
        columns, rows = os.get_terminal_size(2)
        columns, rows = columns or 80, rows or 24
        if len(lines) >= rows > 1:
            hidden = len(lines) - rows + 2
            lines = [*lines[: rows - 2], f"and {hidden} more"]
        cut = [cut_fields(escaped(line).replace("\n", " "), columns - 1) for line in lines]
        text = "\r\n".join(f"{line}\x1b[K" for line in cut)
        home = UP * max(0, len(cut) - 1) + "\r"
        os.write(2, f"\r{text}{ERASE}{home}".encode(errors="replace"))


def cut_fields(line: str, columns: int) -> str:
    """The first fields of a line, as many as fit; a first field that does not fit is cut."""
    fits = re.match(rf".{{0,{columns}}}(?=  |$)", line)
    return fits[0] if fits and fits[0] else line[:columns]


def write(text: str) -> None:
    """Write whole lines to the standard error, from any thread."""
    with suppress(OSError):
        erase = f"\r{ERASE}" if is_terminal() else ""
        os.write(2, f"{erase}{text}\n".encode(errors="replace"))


class _Output(io.FileIO):
    """Standard output or error, which drops text once its terminal or pipe is closed."""

    def write(self, data: "ReadableBuffer") -> int | None:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in GONE:
                raise
            return memoryview(data).nbytes


def survive_lost_output() -> None:
    """Make the process survive the end of its terminal, or of the program that reads its output.

    A process that ignores SIGHUP outlives them, as under nohup or in a shell's background. The
    journals have what it would show.
    """
    for name in ("stdout", "stderr"):
        if (before := getattr(sys, name)) is None:  # closed by the parent
            continue
        before.flush()
        raw = _Output(before.fileno(), "wb", closefd=False)
        after = io.TextIOWrapper(
            io.BufferedWriter(raw), before.encoding, before.errors, line_buffering=True
        )
        setattr(sys, name, after)


def escape_output(stream: TextIO | None) -> None:
    """Escape all text of a stream.

    A library's progress bar, which tqdm begins with a carriage return, is drawn like other progress
    lines on a terminal, and is left out of a log.
    """
    if stream is None:
        return
    write_text, was_bar = stream.write, False

    def write(text: str) -> int:
        nonlocal was_bar
        is_bar = text.startswith(("\r", UP)) and "\n" not in text
        is_end_of_bar = was_bar and not text.strip("\n")  # or moves to a nested bar
        if is_bar and is_drawn_on(stream) and multiprocessing.parent_process() is None:
            if bar := text.replace(UP, ""):  # else it moves back from a nested bar
                draw([bar.strip("\r ")])  # nothing in a seed's process: its parent draws
        elif not is_bar and not is_end_of_bar:
            write_text(f"{ERASE if is_drawn_on(stream) else ''}{escaped(text)}")
        was_bar = is_bar
        return len(text)

    stream.write = write


def is_drawn_on(stream: TextIO) -> bool:
    """Whether a stream is a terminal with lines now: the fork server replaces it in forks."""
    return stream.isatty() and is_terminal()
