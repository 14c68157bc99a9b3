"""Finished runs of the pipeline: dvc.lock, DVC's local cache, and the source files of a commit."""

import functools
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFLICT = re.compile(rb"^(?:<{7}|>{7}) (.+)$", re.MULTILINE)
"""Lines that git writes around the two sides of a merge conflict."""
NO_RESULTS = ("data/journals/", "data/runs/")
"""Paths that may differ although no result does: journals have the digest of a stage's inputs; run
records, outputs in older locks, have times."""
LOCK, STUDIES, JOURNAL = "dvc.lock", "studies/dvc.lock", "/journal"
"""Lock of the pipeline, lock of the studies; end of the path of a study's journal."""
RUNS, RUN_FILE = "data/runs", "run.json"
"""Run records, one folder per execution; the file with its fields, written last."""
PRESETS = "stages/presets.yaml"
Entry = dict[str, Any]
"""Keys `cmd`, `deps`, `params`, `outs`. In the run cache, local or in a remote, its file is
runs/<first two digits>/<digest of the inputs>/<digest of the entry>."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedStage:
    """Entry of dvc.lock: inputs and outputs of a stage's last run."""

    command: str
    parameters: Mapping[str, Any]
    """Key, such as `grpo.num_steps` -> value; a preset's keys begin with `presets`."""
    deps: Mapping[str, str]
    """Path -> MD5."""
    outs: Mapping[str, str]
    """Path -> MD5, without `NO_RESULTS`."""
    inputs: str
    """Digest of all inputs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    """One of two runs to compare."""

    name: str
    stages: Mapping[str, LockedStage]
    """Stages by name; names of studies begin with `studies/`."""
    root: Path
    revision: str | None
    """Commit of its source files; None: the files in the folder."""

    def source(self, path: str) -> bytes:
        """Content of a source file at the run's commit; empty if there is none."""
        return read_file(self.root, self.revision, path) or b""


def digest_entry(entry: Entry) -> str:
    """DVC's name of an entry: SHA-256 of its content without sizes."""
    from dvc.utils import dict_sha256

    return dict_sha256(entry, exclude=["size", "nfiles"])


def digest_inputs(entry: Entry) -> str:
    """DVC's name of an entry's inputs: command, dependencies, parameters, paths of outputs."""
    return digest_entry(entry | {"outs": [out["path"] for out in entry["outs"]]})


def open_run(root: Path, where: str | None) -> FinishedRun:
    """Run of a commit, of a dvc.lock, or, with None, of the folder `root`.

    Raises:
        ValueError: the commit or file does not exist, or has no valid dvc.lock.
    """
    name = "this folder" if where is None else where
    is_commit = where is not None and not Path(where).is_file()
    revision = where if is_commit else None
    lock = root / "dvc.lock" if where is None or is_commit else Path(where)
    content = read_file(lock.parent, revision, lock.name)
    if content is None:
        raise ValueError(f"there is no dvc.lock in {name}: name a commit or a dvc.lock that exists")
    stages = parse_lock(content, name)
    if studies := read_file(lock.parent, revision, STUDIES):
        of_studies = parse_lock(studies, name, STUDIES)
        stages |= {f"studies/{study}": stage for study, stage in of_studies.items()}
    return FinishedRun(name=name, stages=stages, root=root, revision=revision)


def parse_lock(content: bytes, place: str, path: str = LOCK) -> dict[str, LockedStage]:
    """Stages of the dvc.lock of `place`, by name.

    Raises:
        ValueError: DVC would not read it: it has a merge conflict, or was cut off.
    """
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA

    locked = parse_checked(content, path, COMPILED_LOCKFILE_SCHEMA)
    if locked is None:
        problem = "it was cut off, or is no lock of DVC's; `dvc repro` writes it anew"
        raise ValueError(f"{path} of {place}: {describe_conflict(content, path) or problem}")
    return read_stages(locked)


def parse_checked(content: bytes, path: str, schema: Callable[[Any], Any]) -> Any:
    """Content of one of DVC's files of YAML or JSON; None if it is cut off or not of the schema."""
    from dvc.utils.serialize import YAMLFileCorruptedError, parse_yaml
    from voluptuous import Invalid

    try:
        return schema(parse_yaml(content.decode(), path))
    except (YAMLFileCorruptedError, Invalid, ValueError):
        return None


def read_stages(locked: Mapping[str, Any]) -> dict[str, LockedStage]:
    """Stages of a dvc.lock's content, by name."""
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
            command=entry["cmd"].splitlines()[-1],  # the line before is the same check for all
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


def read_file(folder: Path, revision: str | None, path: str) -> bytes | None:
    """Content of a file of a folder, now or at a commit; None if there is none."""
    if revision is not None:
        return show_file(folder, revision, path)
    file = folder / path
    return file.read_bytes() if file.is_file() else None


@functools.cache  # many stages read the same file
def show_file(root: Path, revision: str, path: str) -> bytes | None:
    """Content of a file at a commit, by its path relative to `root`; None if there is none.

    Raises:
        ValueError: git cannot read the repository.
    """
    try:
        result = subprocess.run(
            ["git", "show", f"{revision}:./{path}"],  # `./`: relative to `cwd`
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


def describe_conflict(content: bytes, path: str) -> str | None:
    """Advice for a dvc.lock with the marks of a merge conflict; None: it has none."""
    sides = [side.decode(errors="replace") for side in CONFLICT.findall(content)]
    if not sides:
        return None
    return (
        f"it has a merge conflict between {' and '.join(dict.fromkeys(sides))}: take one side, "
        f"`git checkout --ours {path}` or `git checkout --theirs {path}`, then run "
        f"`dvc repro {path.removesuffix('.lock')}.yaml`, which restores from the cache what it has "
        f"of the other"
    )


def list_records(root: Path, stage: str, inputs: str) -> list[dict[str, Any]]:
    """Content of run.json of each execution of a stage with these inputs, oldest first."""
    folders = find_records(root, stage, inputs)
    records = [json.loads((folder / RUN_FILE).read_text(encoding="utf-8")) for folder in folders]
    return sorted(records, key=lambda record: record["ended"])


def find_records(root: Path, stage: str, inputs: str) -> list[Path]:
    """Folders of the run records of a stage's executions with these inputs."""
    paths = (root / RUNS / stage.replace("@", "/")).glob(f"{inputs[:16]}-*/{RUN_FILE}")
    return [path.parent for path in paths]


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flat mapping with dotted keys: `{"grpo.num_steps": 8}`; a list is one value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        is_nested = isinstance(value, Mapping) and value
        flat |= flatten(value, f"{prefix}{key}.") if is_nested else {f"{prefix}{key}": value}
    return flat


@dataclass(frozen=True, slots=True)
class Cache:
    """DVC's local cache; nothing is downloaded."""

    folder: Path

    def read(self, md5: str) -> bytes | None:
        """Content of the file with this MD5; None if the cache does not have it."""
        path = self.folder / md5[:2] / md5[2:]
        return path.read_bytes() if md5 and path.is_file() else None

    def read_files(self, md5: str, name: str) -> dict[str, bytes]:
        """Parent folder -> content of the file called `name`, in the folder with this MD5.

        Empty if the cache does not have the folder, or the MD5 is that of a file.
        """
        if not md5.endswith(".dir"):
            return {}
        return {
            Path(file["relpath"]).parent.as_posix(): content
            for file in json.loads(self.read(md5) or "[]")
            if Path(file["relpath"]).name == name
            and (content := self.read(file["md5"])) is not None
        }


def open_cache(root: Path) -> Cache:
    """Local cache of the DVC repository in `root`."""
    from dvc.repo import Repo

    with Repo(str(root)) as repo:
        return Cache(Path(repo.cache.local.path))
