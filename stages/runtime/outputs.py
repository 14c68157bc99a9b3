"""Atomic outputs and parts: written under a temporary name, then renamed."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stages.runtime import process

logger = logging.getLogger(__name__)

PIPE = Path(".pipe")
"""Scratch of running and interrupted stages; ignored by git and DVC."""


@contextmanager
def replace(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder, for a file or a folder.

    When the block ends, it replaces `path`; if the block fails, it is deleted, with the folder
    around it if that is new. An output that exists is never opened: DVC links outputs to its cache,
    so writing into one would corrupt the cache.
    """
    is_new = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    retired = path.with_name(f".{path.name}.old")
    for leftover in (temporary, retired):
        _remove(leftover)
    try:
        yield temporary
        assert temporary.exists(), f"nothing was written to {temporary}"
        if path.is_dir() and not path.is_symlink():
            # A folder cannot be renamed over a folder with files.
            path.replace(retired)
        elif temporary.is_dir():
            _remove(path)
        temporary.replace(path)
    except BaseException:
        if retired.exists() and not path.exists():
            retired.replace(path)
        _remove(temporary)
        if is_new and not any(path.parent.iterdir()):
            path.parent.rmdir()
        raise
    _remove(retired)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write the content as indented JSON, atomically."""
    with replace(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def check_exists(path: Path) -> None:
    """Raise a ValueError with the remedy if an output of the run is missing."""
    if not path.exists():
        raise ValueError(f"{path} is missing: `dvc repro` makes it, `dvc checkout` restores it")


def read_json(path: Path) -> Any:
    """Content of a JSON file of the run; a ValueError with the remedy if it is missing."""
    check_exists(path)
    return json.loads(path.read_text(encoding="utf-8"))


def link_or_copy(source: str, target: str) -> None:
    """Hard-link a file; copy it on a file system without hard links.

    Neither name is ever written into: a stage replaces its outputs, and DVC makes them read-only.
    """
    try:
        # Resolved first: DVC may have put a symbolic link to its cache there.
        os.link(Path(source).resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def keep_parts(folder: Path, work: Callable[[int], Iterator[Any]]) -> Iterator[Any]:
    """All parts of a work in order: those that a killed attempt has saved, then the others.

    A part is JSON content; it is on disk, with its digest in its name, before it is yielded, and a
    damaged part is computed again. The parts that `work(n)` yields must be a function only of n and
    of the stage's inputs. The folder is inside `Run.folder`, which belongs to these inputs and is
    removed after success. No part is saved after this process was asked to end.
    """
    num_kept = 0
    # A part has a temporary name until it is whole.
    for path in sorted(folder.glob("[0-9]*.part")):
        content = path.read_bytes()
        if path.name == _part_name(num_kept, content):
            yield json.loads(content)
            num_kept += 1
        else:
            logger.warning("%s is damaged: it is made again", path)
            path.unlink()
    if num_kept:
        logger.info("%s: goes on after part %d", folder, num_kept)
    for index, part in enumerate(work(num_kept), start=num_kept):
        process.check_stop()
        content = json.dumps(part).encode()
        with replace(folder / _part_name(index, content)) as temporary:
            temporary.write_bytes(content)
        yield json.loads(content)


def _part_name(index: int, content: bytes) -> str:
    return f"{index:06d}-{hashlib.sha256(content).hexdigest()[:16]}.part"
