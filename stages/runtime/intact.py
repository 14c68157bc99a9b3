"""Inputs that are not what DVC takes them for, as an object of its cache was damaged on disk.

DVC hashes no object that is read-only, restores it, and believes what it has restored.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def check(stage: Any) -> None:
    """Refuse to start a DVC stage on damaged inputs, and remove them, so that they are made anew.

    Every input is read once, about a second for half a gigabyte. Call it after `save_deps`.
    """
    damaged = [path for path, md5 in _files(stage.deps) if _digest(path) != md5]
    for path, md5 in _files(stage.deps):
        cached = Path(stage.repo.cache.local.oid_to_path(md5))
        if path in damaged and cached.is_file():
            path.unlink(missing_ok=True)
            if _digest(cached) != md5:
                cached.unlink()
    if damaged:
        raise ValueError(
            f"expected the content that DVC has recorded, found another, damaged on disk: "
            f"{', '.join(map(str, damaged))}. It is removed, from DVC's cache too where that copy "
            f"is damaged: run `dvc repro` again, which restores or computes it."
        )


def _files(dependencies: Any) -> Iterator[tuple[Path, str]]:
    """Every file of the dependencies, and its MD5; parameters are none."""
    for one in dependencies:
        if one.hash_info.name == "md5":
            root = Path(one.fs_path)
            files = one.obj if one.hash_info.isdir else [((), None, one.hash_info)]
            yield from ((root.joinpath(*key), file.value) for key, _, file in files)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
