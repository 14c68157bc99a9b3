"""Checkpoint folders: written whole or not at all, verified when read, the last two kept.

    <folder>/step-00000012/     what the caller wrote
                 manifest.json  length and digest of each of its files

A process that is killed, or asked to end, loses its work since the last checkpoint. So writing
checkpoints takes `SHARE` of the time; they are at least `SHORTEST` and at most
POSTTRAIN_CHECKPOINT_SECONDS seconds apart, 300 by default. No bit of an output depends on it.
"""

import functools
import hashlib
import json
import logging
import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

INTERVAL_VARIABLE = "POSTTRAIN_CHECKPOINT_SECONDS"
SHARE, SHORTEST = 0.05, 10.0
NUM_CHECKPOINTS = 2
"""Number of checkpoints to keep: the last whole one, and the one before in case it is damaged."""
MANIFEST = "manifest.json"
PREFIX = "step-"
Write = Callable[[Path], None]
"""Function that fills an empty folder."""


def write(folder: Path, step: int, content: Write, lengths: Mapping[Path, int]) -> None:
    """Write the checkpoint of a step, on disk when this returns, and remove all older ones but one.

    `lengths`: bytes of growing files outside the folder that belong to this step.
    """
    target = folder / f"{PREFIX}{step:08d}"
    temporary = folder / f".{target.name}.partial"
    for old in folder.glob(".*.partial"):  # of attempts that a kill interrupted
        shutil.rmtree(old, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        content(temporary)
        inside = {path: path.stat().st_size for path in sorted(temporary.iterdir())}
        manifest = {
            os.path.relpath(path, temporary): [length, _digest(path, length)]
            for path, length in (inside | dict(lengths)).items()
        }
        (temporary / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        for path in (*inside, *lengths, temporary / MANIFEST, temporary):
            _sync(path)
        if target.exists():  # of an earlier attempt: the same bits
            shutil.rmtree(target)
        temporary.rename(target)
        _sync(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for old in _all(folder)[:-NUM_CHECKPOINTS]:
        shutil.rmtree(old)


def find_last_checkpoint(folder: Path) -> Path | None:
    """The last whole checkpoint, or None; damaged ones are removed with a warning."""
    for path in reversed(_all(folder)):
        try:
            if (damage := _damage(path)) is None:
                return path
        except OSError as error:
            logger.warning("%s cannot be read (%s): the one before it is used", path, error)
            continue
        logger.warning("%s is damaged (%s): the one before it is used", path, damage)
        shutil.rmtree(path)
    return None


def _all(folder: Path) -> list[Path]:
    """Every checkpoint, by step."""
    return sorted(folder.glob(f"{PREFIX}*"))


def _damage(path: Path) -> str | None:
    """Description of the damage of a checkpoint, or None."""
    try:
        for name, (length, digest) in _manifest(path).items():
            if _digest(path / name, length) != digest:
                return f"{name} has other bits than were written"
    except (FileNotFoundError, ValueError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def outside_lengths(checkpoint: Path) -> dict[Path, int]:
    """Bytes of each file outside the folder that belong to the checkpoint."""
    files = {checkpoint / name: length for name, (length, _) in _manifest(checkpoint).items()}
    return {
        Path(os.path.normpath(path)): length
        for path, length in files.items()
        if path.parent != checkpoint
    }


def _manifest(checkpoint: Path) -> dict[str, Any]:
    """Manifest: length and digest of each file."""
    return json.loads((checkpoint / MANIFEST).read_bytes())


@functools.lru_cache(maxsize=1024)
def _digest_at(path: Path, length: int, changed: int) -> str:  # noqa: ARG001
    """SHA-256 of the first bytes of a file, read once for each time that it was `changed`."""
    digest, remaining = hashlib.sha256(), length
    with path.open("rb") as file:
        while remaining and (part := file.read(min(remaining, 2**20))):
            digest.update(part)
            remaining -= len(part)
    return digest.hexdigest() if not remaining else "too short"


def _digest(path: Path, length: int) -> str:
    """SHA-256 of the first bytes of a file."""
    return _digest_at(path, length, path.stat().st_mtime_ns)


def _sync(path: Path) -> None:
    """Have the kernel write a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Writer:
    """Writes checkpoints of a loop in a thread."""

    def __init__(self, folder: Path, saved: int = 0) -> None:
        """`folder` need not exist; its last checkpoint is of the step `saved`, 0 for none."""
        self._folder, self._begun, self._seconds = folder, time.monotonic(), 0.0
        self.saved = saved
        """Step of the last checkpoint that is on disk."""
        self._thread: threading.Thread | None = None

    def due(self) -> bool:
        """Whether the last checkpoint is written, and it is time for the next."""
        busy = self._thread is not None and self._thread.is_alive()
        interval = min(read_interval(), max(SHORTEST, self._seconds / SHARE))
        return not busy and time.monotonic() - self._begun >= interval

    def write(self, step: int, copy: Callable[[], Write], lengths: Mapping[Path, int]) -> None:
        """Copy a state and begin to write it; a failure is a warning."""
        self.wait()
        self._begun = time.monotonic()
        arguments = (step, copy(), lengths)
        self._thread = threading.Thread(target=self._write, args=arguments, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the last checkpoint is written."""
        if self._thread is not None:
            self._thread.join()

    def _write(self, step: int, content: Write, lengths: Mapping[Path, int]) -> None:
        try:
            write(self._folder, step, content, lengths)
            self.saved, self._seconds = step, time.monotonic() - self._begun
        except Exception as error:  # noqa: BLE001
            self._seconds = math.inf  # not again soon
            logger.warning("no checkpoint of step %d in %s: %s", step, self._folder, error)


def read_interval() -> float:
    """Seconds between two checkpoints; a ValueError if the environment has no such number."""
    text, seconds = os.environ.get(INTERVAL_VARIABLE, "300"), float("nan")
    with suppress(ValueError):
        seconds = float(text)
    if not seconds >= 0:
        raise ValueError(
            f"{INTERVAL_VARIABLE}: expected seconds, 0 or more, found {text!r}. Set a number."
        )
    return seconds
