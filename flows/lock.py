"""Finished runs of the pipeline: dvc.lock, DVC's local cache, and the source files of a commit."""

import functools
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

CONFLICT = re.compile(rb"^(?:<{7}|>{7}) (.+)$", re.MULTILINE)
"""Lines that git writes around the two sides of a merge conflict."""
NO_RESULTS = ("data/journals/", "data/runs/")
"""Journals, which hold the digest of a stage's inputs, and run records, which were outputs in older
locks and hold times: they differ where no result does."""
STUDIES, JOURNAL = "studies/dvc.lock", "/journal"
"""Of the studies that were run; how the path of a study's journal ends."""
RUNS, RUN_FILE = "data/runs", "run.json"
"""Run records, a folder for each execution; what is known of it, written last."""
PRESETS = "stages/presets.yaml"
Entry = dict[str, Any]
"""`cmd`, `deps`, `params`, `outs`. In the run cache, here and in a remote, its file is
runs/<first two digits>/<digest of the inputs>/<digest of the entry>."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedStage:
    """Entry of dvc.lock: what a stage read and wrote when it last ran."""

    command: str
    parameters: Mapping[str, Any]
    """`grpo.num_steps` -> value; a preset's begin with `presets`."""
    deps: Mapping[str, str]
    """Path -> MD5."""
    outs: Mapping[str, str]
    """Path -> MD5, without `NO_RESULTS`."""
    inputs: str
    """Digest of everything that it read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    """One of two runs that are compared."""

    name: str
    stages: Mapping[str, LockedStage]
    """By name; those of studies begin with `studies/`."""
    root: Path
    revision: str | None
    """Commit of its source files; None: as they are in the folder."""

    def source(self, path: str) -> bytes:
        """Content of a source file at the run's commit; empty if there is none."""
        if self.revision is not None:
            return show_file(self.root, self.revision, path) or b""
        file = self.root / path
        return file.read_bytes() if file.is_file() else b""


def digest_entry(entry: Entry) -> str:
    """DVC's name of an entry: SHA-256 of its content, sizes aside."""
    from dvc.utils import dict_sha256

    return dict_sha256(entry, exclude=["size", "nfiles"])


def digest_inputs(entry: Entry) -> str:
    """DVC's name of an entry's inputs: command, dependencies, parameters, paths of outputs."""
    return digest_entry(entry | {"outs": [out["path"] for out in entry["outs"]]})


def open_run(root: Path, where: str | None) -> FinishedRun:
    """The run of a commit, of a dvc.lock, or, with None, of the folder `root`.

    Raises:
        ValueError: there is no such commit or file, it has no dvc.lock, or that is none.
    """
    name = "this folder" if where is None else where
    path = root / "dvc.lock" if where is None else Path(where)
    revision = None if where is None or path.is_file() else where
    if revision is not None:
        content = show_file(root, revision, "dvc.lock")
    else:
        content = path.read_bytes() if path.is_file() else None
    if content is None:
        raise ValueError(f"there is no dvc.lock in {name}: name a commit or a dvc.lock that exists")
    stages = parse_lock(content, name)
    if revision is not None:
        studies = show_file(root, revision, STUDIES)
    else:
        file = path.parent / STUDIES
        studies = file.read_bytes() if file.is_file() else None
    if studies is not None:
        stages |= {f"studies/{study}": stage for study, stage in parse_lock(studies, name).items()}
    return FinishedRun(name=name, stages=stages, root=root, revision=revision)


def parse_lock(content: bytes, place: str) -> dict[str, LockedStage]:
    """Every stage of the dvc.lock of `place`, by name.

    Raises:
        ValueError: it has a merge conflict, or was cut off.
    """
    try:
        locked = YAML(typ="safe").load(content) or {}
    except (YAMLError, UnicodeDecodeError) as error:
        problem = describe_conflict(content) or f"it cannot be read ({str(error).splitlines()[0]})"
        raise ValueError(f"dvc.lock of {place}: {problem}") from None
    stages: dict[str, LockedStage] = {}
    for name, entry in locked.get("stages", {}).items():
        deps, outs = (
            {item["path"]: item.get("md5", "") for item in entry.get(key, [])}
            for key in ("deps", "outs")
        )
        parameters: dict[str, Any] = {}
        for file, values in entry.get("params", {}).items():
            parameters |= flatten(values, "presets." if file == PRESETS else "")
        stages[name] = LockedStage(
            command=entry["cmd"].splitlines()[-1],  # after the check, which is the same for all
            parameters=parameters,
            deps=deps,
            outs={
                path: md5
                for path, md5 in outs.items()
                if not path.startswith(NO_RESULTS) and not path.endswith(JOURNAL)
            },
            inputs=digest_inputs({"outs": [], **entry}),
        )
    return stages


@functools.cache  # many stages read the same file
def show_file(root: Path, revision: str, path: str) -> bytes | None:
    """Content of a file at a commit, its path relative to `root`; None if there is none.

    Raises:
        ValueError: git cannot read the repository.
    """
    try:
        result = subprocess.run(
            ["git", "show", f"{revision}:./{path}"],  # with `./` also below the repository's root
            cwd=root,
            env=os.environ | {"LC_ALL": "C"},
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise ValueError(f"commit {revision} cannot be read without git: install it") from None
    error = result.stderr.decode(errors="replace")
    if "dubious ownership" in error or "not a git repository" in error:
        raise ValueError(
            f"commit {revision} cannot be read in {root}: {error.strip()}\nDo what git says, or "
            f"name two dvc.lock files to compare"
        )
    return result.stdout if result.returncode == 0 else None


def describe_conflict(content: bytes) -> str | None:
    """What to do about a dvc.lock with the marks of a merge conflict; None: it has none."""
    sides = [side.decode(errors="replace") for side in CONFLICT.findall(content)]
    if not sides:
        return None
    return (
        f"it has a merge conflict between {' and '.join(dict.fromkeys(sides))}: take one side, "
        f"`git checkout --ours dvc.lock` or `git checkout --theirs dvc.lock`, then run "
        f"`dvc repro`, which restores from the cache what it has of the other"
    )


def list_records(root: Path, stage: str, inputs: str) -> list[dict[str, Any]]:
    """The run.json of each execution of a stage with these inputs in this folder, oldest first."""
    folders = find_records(root, stage, inputs)
    records = [json.loads((folder / RUN_FILE).read_text(encoding="utf-8")) for folder in folders]
    return sorted(records, key=lambda record: record["ended"])


def find_records(root: Path, stage: str, inputs: str) -> list[Path]:
    """The run records of the executions of a stage with these inputs."""
    paths = (root / RUNS / stage.replace("@", "/")).glob(f"{inputs[:16]}-*/{RUN_FILE}")
    return [path.parent for path in paths]


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"grpo": {"num_steps": 8}}` as `{"grpo.num_steps": 8}`; a list is one value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        is_nested = isinstance(value, Mapping) and value
        flat |= flatten(value, f"{prefix}{key}.") if is_nested else {f"{prefix}{key}": value}
    return flat


@dataclass(frozen=True, slots=True)
class Cache:
    """DVC's local cache; nothing is fetched."""

    folder: Path

    def read(self, md5: str) -> bytes | None:
        """Content of the file with this MD5; None if the cache does not have it."""
        path = self.folder / md5[:2] / md5[2:]
        return path.read_bytes() if md5 and path.is_file() else None

    def read_files(self, md5: str, name: str) -> dict[str, bytes]:
        """Parent folder -> content, of the files called `name` in the folder with this MD5.

        Empty if the cache does not have the folder, or the MD5 is a file's.
        """
        if not md5.endswith(".dir"):
            return {}
        contents = {
            Path(file["relpath"]): self.read(file["md5"])
            for file in json.loads(self.read(md5) or "[]")
            if Path(file["relpath"]).name == name
        }
        return {
            path.parent.as_posix(): content
            for path, content in contents.items()
            if content is not None
        }


def open_cache(root: Path) -> Cache:
    """Local cache of the DVC repository in `root`."""
    from dvc.repo import Repo

    with Repo(str(root)) as repo:
        return Cache(Path(repo.cache.local.path))
