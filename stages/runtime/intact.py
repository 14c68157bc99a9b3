"""Checks that code and inputs are those that DVC has recorded: not edited, not damaged on disk."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

TRACED = ("data/code/", "data/own/", "data/studies/trace_code/")


def check_sources(dependencies: Iterable[str]) -> None:
    """Raise a ValueError if the code was edited after trace_code had recorded its digests for DVC.

    A stage that starts an hour later imports the files of that time: DVC would keep its result, and
    restore it one day, as that of the older code. Dependencies are relative to the repository.
    """
    for traced in sorted(path for path in dependencies if path.startswith(TRACED)):
        for file, expected in json.loads(Path(traced).read_text(encoding="utf-8")).items():
            path = Path(file)
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
            if digest != expected:
                raise ValueError(
                    f"{file} was edited after {traced}, DVC's record of this stage's code, was "
                    f"written. Run `dvc repro` again; if it says the same, or before "
                    f"`dvc repro -s <stage>`, run `dvc repro -f -s trace_code`."
                )


def check_inputs(stage: Any) -> None:
    """Raise a ValueError if inputs of a DVC stage are damaged; removes them, to be made anew.

    DVC does not hash a read-only object: it restores and trusts it. Here every input is read once,
    about a second per half gigabyte. Call it after `save_deps`.
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
            f"expected the content that DVC has recorded, found files damaged on disk: "
            f"{', '.join(map(str, damaged))}. Those with a copy in DVC's cache are removed (and a "
            f"damaged copy): `dvc repro` restores or computes them. Restore the others yourself."
        )


def _files(dependencies: Any) -> Iterator[tuple[Path, str]]:
    """Every file of the dependencies, with its MD5; parameters are not files."""
    for dependency in dependencies:
        if dependency.hash_info.name == "md5":
            root = Path(dependency.fs_path)
            info = dependency.hash_info
            files = dependency.obj if info.isdir else [((), None, info)]
            yield from ((root.joinpath(*key), file.value) for key, _, file in files)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
