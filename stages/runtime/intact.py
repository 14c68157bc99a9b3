"""Checks that code and inputs are those that DVC has recorded: not edited, not damaged on disk."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

RAW_FILES = ("data/inputs.json", "data/raw.json")
"""Digests of the user's files, by `plan`. Those of the model are not compared here: prepare_data
writes what it read into origin.json."""
TRACED = ("data/code/", "data/own/", "data/studies/trace_code/", *RAW_FILES)
OWN_USES = ("reward.json", "environment.json")
"""Files in a row's folder with the digests of the user's code and files that a reader opens."""
OWN = Path("data/own")


def check_sources(dependencies: Iterable[str]) -> None:
    """Raise a ValueError if code or the user's files were edited after DVC's record of them.

    DVC knows them by files of digests. A stage that starts an hour later reads the files of that
    time: DVC would keep its result, and restore it one day, as that of the older ones.
    Dependencies are relative to the repository.
    """
    for name in sorted(dependencies):
        if name.startswith(TRACED):
            _check_digests(Path(name), json.loads(Path(name).read_text(encoding="utf-8")))
        for path in (Path(name, record) for record in OWN_USES):
            if path.is_file():
                content = json.loads(path.read_text(encoding="utf-8"))
                digests: dict[str, Any] = {**(content.get("files") or {})}
                traced = [str(OWN / word)] if (word := content["own"]) else []
                digests |= dict.fromkeys(traced, content["own_digest"])
                _check_digests(path, digests)  # also that they exist
                check_sources(traced)


def _check_digests(record: Path, digests: Mapping[str, str]) -> None:
    for file, expected in digests.items():
        if file.startswith("model."):
            continue
        path = Path(file)
        digest = "no file"
        if path.is_file():
            with path.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
        if digest != expected:
            raise ValueError(
                f"{file} was edited after {record}, by which DVC knows it, was written. Run `dvc "
                f"repro` again; if it says the same, or before `dvc repro -s <stage>`, run `dvc "
                f"repro -f -s plan trace_code`."
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
