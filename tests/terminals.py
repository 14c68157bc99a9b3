"""A command on a pseudo-terminal, and what it writes there."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]")


def run_on_terminal(
    command: Sequence[str],
    folder: Path,
    columns: int,
    environment: Mapping[str, str] | None = None,
    status: int = 0,
) -> str:
    """All that the command writes on a terminal of so many columns; it has to end with `status`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", **(environment or {})}
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 4096):
            written += chunk
    except OSError:  # Linux says that the other end is closed
        pass
    os.close(ours)
    assert process.wait() == status, written.decode()
    return written.decode()


def list_texts(written: str) -> list[str]:
    """The texts between control characters and sequences."""
    return [text for text in CONTROL.split(written) if text]
