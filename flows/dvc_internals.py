"""DVC's internals: messages, files that a kill truncated, single entries of the run cache.

They have no public interface and may change with DVC's version, which constraints.txt pins;
tests/flows compare them with the output and files of DVC's commands.
"""

import logging
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from flows.lock import (
    Entry,
    describe_conflict,
    digest_entry,
    digest_inputs,
    parse_checked,
    show_file,
)

logger = logging.getLogger(__name__)

# Messages of `dvc repro`.
RUNNING = "Running stage '{}':"
RESTORED = "Stage '{}' is cached - skipping run"
LOCK_LINES = re.compile(r"(Updating|Generating) lock file ")
CHATTER = re.compile(r"Running stage '|> python |Stage '.*' is cached - skipping run")
"""Lines of DVC that a display of the stages replaces."""
BUSY = re.compile(r"is busy, it is being blocked by|Unable to acquire lock")
TORN = re.compile(
    r"Unable to read RWLock-file '[^']*'. JSON structure|dvc\.lock' (is invalid|validation failed)"
)
GIT_HINTS = (
    "",
    "To track the changes with git, run:",
    "git add dvc.lock",
    "To enable auto staging, run:",
    "dvc config core.autostage true",
    "Use `dvc push` to send your updates to remote storage.",
)
"""Printed after every stage; they hide the rest of a long log."""


def mend(root: Path) -> None:
    """Replace files that DVC was writing when it was killed: every later command would fail.

    A dvc.lock becomes that of the last commit; newer results are restored from DVC's run cache. The
    list of paths in use, which concerns only running processes, starts empty. A folder of the run
    cache without its entry, at which DVC fails, is deleted, and so is a link of `trace_code` to a
    missing file.

    Raises:
        ValueError: a dvc.lock has a merge conflict, which only its user can resolve.
    """
    for link in (root / "stages/.own_links").rglob("*.link"):
        if not link.exists():
            link.unlink(missing_ok=True)
    rwlock = root / ".dvc/tmp/rwlock"
    torn = list(filter(is_torn, (rwlock, root / "dvc.lock", root / "studies/dvc.lock")))
    entries = root.glob(".dvc/cache/runs/??/*")
    empty = [folder for folder in entries if folder.is_dir() and not any(folder.iterdir())]
    if not torn and not empty:
        return
    from dvc.lock import make_lock
    from dvc.repo import Repo

    guard = make_lock(f"{rwlock}.lock", tmp_dir=str(rwlock.parent), wait=True)
    # A file that DVC is writing only looks truncated or empty: DVC holds these two locks meanwhile.
    with Repo(str(root), _wait_for_lock=True).lock, guard:
        for folder in empty:
            with suppress(OSError):  # the entry has been written meanwhile
                folder.rmdir()
        for path in filter(is_torn, torn):
            committed = None
            if path != rwlock:
                name = path.relative_to(root).as_posix()
                if conflict := describe_conflict(path.read_bytes(), name):
                    raise ValueError(f"{path}: {conflict}")
                with suppress(ValueError):  # git cannot be asked
                    committed = show_file(path.parent, "HEAD", path.name)
            if committed is None:
                path.unlink()
                logger.warning("%s was cut off: it begins empty; results are in the cache", path)
            else:
                part = path.with_name(f".{path.name}.{os.getpid()}")  # the disk may still be full
                part.write_bytes(committed)
                part.replace(path)
                logger.warning("%s was cut off: it is HEAD's again", path)


def is_torn(path: Path) -> bool:
    """Whether DVC refuses one of its files, or had not begun to write it."""
    from dvc.rwlock import SCHEMA
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA

    schema = SCHEMA if path.name == "rwlock" else COMPILED_LOCKFILE_SCHEMA
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # another flow may have mended it
        return False
    return not content or parse_checked(content, str(path), schema) is None


def load_stage(repo: Any, name: str, *, refresh: bool) -> tuple[Any, str | None, Entry | None]:
    """A stage, the digest of its inputs, and its entry in dvc.lock.

    The digest is None if DVC has no run cache for the stage. The entry is None if there is none or
    its command differs.

    Args:
        repo: An open `dvc.repo.Repo`.
        name: DVC's address of the stage.
        refresh: Whether the digest is of the inputs in the folder, not of those in dvc.lock.
    """
    from dvc.stage.cache import _can_hash
    from dvc.stage.serialize import to_single_stage_lockfile

    with repo.lock:  # DVC writes dvc.lock in place
        stage: Any = repo.stage.load_one(name=name)
        is_complete = not stage.cmd_changed and all(out.hash_info for out in stage.outs)
        entry: Any = to_single_stage_lockfile(stage) if is_complete else None
        if refresh:
            stage.save_deps()
    if not _can_hash(stage) or not all(out.use_cache for out in stage.outs):
        return stage, None, entry
    inputs: Any = to_single_stage_lockfile(stage)
    return stage, digest_inputs(inputs), entry


def parse_entry(content: bytes, path: str) -> Entry | None:
    """Entry in a file of the run cache; None if DVC's schema refuses it."""
    from dvc.schema import COMPILED_LOCK_FILE_STAGE_SCHEMA

    return parse_checked(content, path, COMPILED_LOCK_FILE_STAGE_SCHEMA)


def list_entries(repo: Any, key: str) -> list[Entry]:
    """Entries in this clone's run cache for the inputs with digest `key`."""
    folder = Path(repo.stage_cache._get_cache_dir(key))
    entries = (repo.stage_cache._load_cache(key, path.name) for path in folder.glob("*"))
    return [entry for entry in entries if entry]


def save_entry(repo: Any, key: str, entry: Entry) -> Path:
    """Write an entry into this clone's run cache, unless it is there; returns its path."""
    from dvc.utils.serialize import dump_yaml

    path = Path(repo.stage_cache._get_cache_path(key, digest_entry(entry)))
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        dump_yaml(str(part), entry)
        part.replace(path)
    return path


def stage_with_outputs(repo: Any, stage: Any, entry: Entry) -> Any:
    """The stage with the outputs that an entry names."""
    return repo.stage_cache._create_stage(entry, wdir=stage.wdir)


def remove_from_lock(repo: Any, stage: Any) -> None:
    """Delete a stage's entry in dvc.lock, so that DVC takes the newest entry of its run cache."""
    with repo.lock:
        stage.dvcfile._lockfile.remove_stage(stage)
