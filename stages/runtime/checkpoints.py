"""Checkpoints on disk: whole or not at all, recognised when damaged, the last two kept.

    <folder>/step-00000012/     what the caller wrote
                 manifest.json  the digest of each of its files

How often one is written is execution: POSTTRAIN_CHECKPOINT_SECONDS, 300 by default, changes no bit.
"""

import functools
import hashlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

SECONDS = "POSTTRAIN_CHECKPOINT_SECONDS"
KEPT = 2
"""One is whole while the next is written, and the one before it stands in for a damaged one."""
MANIFEST = "manifest.json"
PREFIX = "step-"
Write = Callable[[Path], None]
"""Fill an empty folder."""


def write(folder: Path, step: int, content: Write, grown: Mapping[Path, int]) -> None:
    """A checkpoint of a step, on disk when this returns; older ones but the last go.

    `grown`: files outside, and up to which byte the checkpoint is of them.
    """
    path = folder / f"{PREFIX}{step:08d}"
    temporary = folder / f".{path.name}.partial"
    for old in folder.glob(".*.partial"):  # of attempts that a kill interrupted
        shutil.rmtree(old, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        content(temporary)
        files = sorted(temporary.iterdir())
        lengths = {file: file.stat().st_size for file in files}
        manifest = {
            os.path.relpath(file, temporary): [length, _digest(file, length)]
            for file, length in (lengths | dict(grown)).items()
        }
        (temporary / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
        for file in (*lengths, *grown, temporary / MANIFEST, temporary):
            _sync(file)
        if path.exists():  # of an attempt before: the same bits
            shutil.rmtree(path)
        temporary.rename(path)
        _sync(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for old in _all(folder)[:-KEPT]:
        shutil.rmtree(old)


def last(folder: Path) -> Path | None:
    """The last whole checkpoint; damaged ones are told of and removed."""
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
    """By step."""
    return sorted(folder.glob(f"{PREFIX}*"))


def _damage(path: Path) -> str | None:
    """What is wrong with a checkpoint; None: nothing."""
    try:
        for name, (length, digest) in _manifest(path).items():
            if _digest(path / name, length) != digest:
                return f"{name} has other bits than were written"
    except (FileNotFoundError, ValueError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def grown(checkpoint: Path) -> dict[Path, int]:
    """The files outside that a checkpoint is of, and up to which byte."""
    files = {checkpoint / name: length for name, (length, _) in _manifest(checkpoint).items()}
    return {
        Path(os.path.normpath(path)): length
        for path, length in files.items()
        if path.parent != checkpoint
    }


def _manifest(checkpoint: Path) -> dict[str, Any]:
    """Of each file its length and digest."""
    return json.loads((checkpoint / MANIFEST).read_bytes())


@functools.lru_cache(maxsize=1024)
def _whole(path: Path, length: int, changed: int) -> str:  # noqa: ARG001
    """Of a file as it was at a time: policies on the way are read once, not at each checkpoint."""
    content, remaining = hashlib.sha256(), length
    with path.open("rb") as file:
        while remaining and (part := file.read(min(remaining, 2**20))):
            content.update(part)
            remaining -= len(part)
    return content.hexdigest() if not remaining else "too short"


def _digest(path: Path, length: int) -> str:
    """Of the first bytes of a file."""
    return _whole(path, length, path.stat().st_mtime_ns)


def _sync(path: Path) -> None:
    """Have the kernel write it to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Writer:
    """Writes checkpoints of a loop now and then, beside its work."""

    def __init__(self, folder: Path) -> None:
        """`folder` need not exist."""
        self._folder, self._begun = folder, time.monotonic()
        self._thread: threading.Thread | None = None

    def due(self) -> bool:
        """Whether the time is over, and the last one written."""
        busy = self._thread is not None and self._thread.is_alive()
        return not busy and time.monotonic() - self._begun >= interval()

    def write(self, step: int, content: Write, grown: Mapping[Path, int]) -> None:
        """Write one beside the work; one that cannot be written is a warning."""
        self.wait()
        self._begun = time.monotonic()
        arguments = (step, content, grown)
        self._thread = threading.Thread(target=self._write, args=arguments, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until the last one is written."""
        if self._thread is not None:
            self._thread.join()

    def _write(self, step: int, content: Write, grown: Mapping[Path, int]) -> None:
        try:
            write(self._folder, step, content, grown)
        except Exception as error:  # noqa: BLE001
            logger.warning("no checkpoint of step %d in %s: %s", step, self._folder, error)


def interval() -> float:
    """Seconds between two checkpoints; a ValueError where the environment says no number."""
    setting, seconds = os.environ.get(SECONDS, "300"), float("nan")
    with suppress(ValueError):
        seconds = float(setting)
    if not seconds >= 0:
        raise ValueError(
            f"{SECONDS}: expected seconds, 0 or more, found {setting!r}. Set a number."
        )
    return seconds
