"""What a run left: dvc.lock, the objects of DVC's cache that it names, its commit's files."""

import ast
import functools
import hashlib
import json
import logging
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

logger = logging.getLogger(__name__)
LOCKS = ("dvc.lock", "studies/dvc.lock")
RECORDS = "data/runs/"
"""Run records hold times: they differ where nothing else does."""
PRESETS = "stages/presets.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedStage:
    """What a stage read and wrote when it last ran."""

    command: str
    parameters: Mapping[str, Any]
    """`grpo.num_steps` -> value; a preset's begin with `presets`."""
    deps: Mapping[str, str]
    """Path -> MD5."""
    outs: Mapping[str, str]
    """Path -> MD5, without run records."""
    records: Mapping[str, str]
    """Path -> MD5 of run records."""


def read(text: str) -> dict[str, LockedStage]:
    """Every stage of a dvc.lock, by name."""
    content = YAML(typ="safe").load(text) or {}
    found = {}
    for name, stage in content.get("stages", {}).items():
        written = {one["path"]: one.get("md5", "") for one in stage.get("outs", [])}
        parameters: dict[str, Any] = {}
        for file, keys in stage.get("params", {}).items():
            parameters |= flatten(keys, ("presets",) if file == PRESETS else ())
        found[name] = LockedStage(
            command=stage["cmd"],
            parameters=parameters,
            deps={one["path"]: one.get("md5", "") for one in stage.get("deps", [])},
            outs={path: md5 for path, md5 in written.items() if not path.startswith(RECORDS)},
            records={path: md5 for path, md5 in written.items() if path.startswith(RECORDS)},
        )
    return found


def flatten(value: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """`{"grpo": {"num_steps": 8}}` as `{"grpo.num_steps": 8}`; a list is one value."""
    if not isinstance(value, Mapping) or not value:
        return {".".join(path): value}
    found: dict[str, Any] = {}
    for key, one in value.items():
        found |= flatten(one, (*path, str(key)))
    return found


@dataclass(frozen=True, slots=True)
class Cache:
    """DVC's local cache, in `folder`; what is not there is None, and never fetched."""

    folder: Path

    def bytes(self, md5: str) -> bytes | None:
        """The content of a file with this MD5."""
        path = self.folder / md5[:2] / md5[2:]
        return path.read_bytes() if md5 and path.is_file() else None

    def files(self, md5: str) -> dict[str, str] | None:
        """Path within a folder -> MD5, of a folder with this MD5."""
        content = self.bytes(md5)
        if content is None:
            return None
        return {one["relpath"]: one["md5"] for one in json.loads(content)}

    def rows(self, md5: str, name: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """The folder in a folder, and the rows, of each of its JSON Lines files of this name."""
        for path, own in (self.files(md5) or {}).items():
            content = self.bytes(own)
            if Path(path).name == name and content is not None:
                yield (
                    Path(path).parent.as_posix(),
                    [json.loads(one) for one in content.splitlines()],
                )

    def metrics(self, md5: str) -> dict[str, Any]:
        """Seed -> its metrics.json, of a folder with a folder for each seed."""
        found = {Path(path): self.bytes(own) for path, own in (self.files(md5) or {}).items()}
        return {
            path.parent.name: json.loads(content)
            for path, content in found.items()
            if path.name == "metrics.json" and len(path.parts) == 2 and content is not None
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two runs."""

    name: str
    stages: Mapping[str, LockedStage]
    root: Path
    revision: str | None
    """Of its source files; None: as they are in the folder."""

    def source(self, path: str) -> bytes:
        """A source file, as the run has it if nothing was edited since."""
        if self.revision is not None:
            return _git(self.root, "show", f"{self.revision}:{path}") or b""
        file = self.root / path
        return file.read_bytes() if file.is_file() else b""

    def digest(self, path: str) -> str:
        """Its SHA-256."""
        return hashlib.sha256(self.source(path)).hexdigest()


def side(root: Path, where: str | None) -> Side:
    """A run by its commit, its dvc.lock, or this folder's."""
    is_file = where is None or Path(where).is_file()
    name = "this folder" if where is None else where
    if is_file:
        path = Path(where) if where else root / "dvc.lock"
        text = path.read_text(encoding="utf-8") if path.is_file() else None
    else:
        content = _git(root, "show", f"{where}:dvc.lock")
        text = None if content is None else content.decode()
    if text is None:
        raise ValueError(f"there is no dvc.lock in {name}: name a commit or a dvc.lock that exists")
    revision = None if is_file else where
    return Side(name=name, stages=read(text), root=root, revision=revision)


def local_cache(root: Path) -> Cache:
    """DVC's cache of the repository in `root`."""
    from dvc.repo import Repo

    with Repo(str(root)) as repo:
        return Cache(Path(repo.cache.local.path))


@functools.cache  # of a file that many stages read
def _git(root: Path, *arguments: str) -> bytes | None:
    result = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    return result.stdout if result.returncode == 0 else None


def number(metrics: Mapping[str, Any], places: Sequence[str]) -> float | None:
    """The number at the first of the places that is there; of an estimate its value.

    A place `heldout/auc` is a name with a slash, or the name `auc` inside of `heldout`.
    """
    for place in places:
        found: Any = metrics
        for key in [place] if place in metrics else place.split("/"):
            found = found.get(key) if isinstance(found, Mapping) else None
        found = found.get("value") if isinstance(found, Mapping) else found
        if found is not None:
            return float(found)
    return None


@functools.cache
def functions(old: str, new: str) -> list[str]:
    """Functions, methods and other statements that differ, without comments and docstrings."""
    parts = [_parts(ast.parse(text)) for text in (old, new)]
    names = parts[0] | parts[1]
    return [name for name in names if parts[0].get(name) != parts[1].get(name)]


def _parts(tree: ast.AST, prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.ClassDef):
            around = [*node.decorator_list, *node.bases, *node.keywords]
            found[f"{prefix}{node.name}"] = "".join(map(ast.dump, around))
            found |= _parts(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:]
            found[f"{prefix}{node.name}"] = ast.dump(node)
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            names = [prefix + one.id for one in targets if isinstance(one, ast.Name)]
            is_import = isinstance(node, ast.Import | ast.ImportFrom)
            key = names[0] if names else "imports" if is_import else "statements"
            found[key] = found.get(key, "") + ast.dump(node)
    return found


def mend(root: Path) -> None:
    """Replace what DVC was killed while writing: it writes in place, and then every command fails.

    A dvc.lock becomes the last commit's; what was done since, DVC restores from its run cache. The
    list of paths in use, which names running processes alone, begins anew.
    """
    busy = root / ".dvc/tmp/rwlock"
    torn = [path for path in (busy, *(root / name for name in LOCKS)) if is_torn(path)]
    if not torn:
        return
    from dvc.lock import make_lock
    from dvc.repo import Repo

    guard = make_lock(f"{busy}.lock", tmp_dir=str(busy.parent), wait=True)
    # What DVC is just writing only looks torn: it holds these two meanwhile.
    with Repo(str(root), _wait_for_lock=True).lock, guard:
        for path in filter(is_torn, torn):
            path.unlink()
            if path == busy:
                continue
            shown = subprocess.run(
                ["git", "show", f"HEAD:./{path.name}"],
                cwd=path.parent, capture_output=True, check=False,
            )  # fmt: skip
            if shown.returncode == 0:
                path.write_bytes(shown.stdout)
            logger.warning("%s was cut off when DVC was killed: it is HEAD's again", path)


def is_torn(path: Path) -> bool:
    """Whether DVC refuses a file of its own."""
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from dvc.utils.serialize import YAMLFileCorruptedError, parse_yaml
    from voluptuous import Invalid

    try:
        text = path.read_text(encoding="utf-8")
        if path.name == "rwlock":
            json.loads(text)
        else:
            COMPILED_LOCKFILE_SCHEMA(parse_yaml(text, path))
    except FileNotFoundError:
        return False
    except (YAMLFileCorruptedError, Invalid, ValueError):
        return True
    return False
