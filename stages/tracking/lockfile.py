"""Entries of dvc.lock, and the run records of the executions that made their outputs."""

import hashlib
import json
import logging
import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dvc.repo import Repo
from dvc.utils import dict_sha256
from dvc.utils.flatten import flatten
from dvc.utils.serialize import load_yaml

from stages import auto
from stages.config import PARAMS_PATH, PRESETS_PATH, merge, read_yaml
from stages.params import read_facts
from stages.rows import Row, parse_row
from stages.runtime import identity, runs

logger = logging.getLogger(__name__)

SIZES = ["size", "nfiles"]
UNKNOWN = ("seconds", "peak_memory_bytes", "git_commit", "git_dirty", "host", "device")
"""Fields of run.json that are None if the run record is on another machine."""
STUDIES = Path("studies/dvc.lock")
"""Lock of the studies, which have another dvc.yaml."""
PREFIXES = {str(PRESETS_PATH): "presets", "studies/params.yaml": "studies"}
"""File -> prefix of its keys in the rules of `auto`."""


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """Dependency or output in dvc.lock."""

    path: Path
    digest: str
    """DVC's MD5, for a folder with the suffix `.dir`."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Entry of a stage in dvc.lock."""

    stage: str
    description: str
    """Its `desc` in dvc.yaml."""
    command: str
    params: dict[str, Any]
    """Dotted names -> values."""
    deps: list[Artifact]
    outs: list[Artifact]
    input_key: str
    lock_hash: str
    """Hash of the stage's entry in dvc.lock."""
    result_hash: str
    """Hash of the entry without the journals."""

    @property
    def journals(self) -> Path | None:
        """Output with the stage's journals; None if the stage writes none."""
        return next((out.path for out in self.outs if _is_journal(self.stage, out.path)), None)

    @property
    def kind(self) -> str:
        """Kind: `train` of `train@grpo`, `checkpoints` of `studies/dvc.yaml:checkpoints@grpo`."""
        return identity.name_of(self.stage).partition("@")[0]

    @property
    def record(self) -> Path | None:
        """Run record of the last execution; None if that was on another machine."""
        return next(reversed(runs.find_records(self.stage, self.input_key)), None)


def read_entries(path: Path = Path("dvc.lock")) -> list[Entry]:
    """Stages of dvc.lock that dvc.yaml still has, in its order, except `track`.

    Names of stages in another folder begin with its file: `studies/dvc.yaml:checkpoints@grpo`.
    """
    if not path.exists():
        return []
    with closing(Repo(".")) as repo:
        current = {stage.addressing: stage.desc or "" for stage in repo.index.stages}
    prefix = "" if path.parent == Path() else f"{path.with_suffix('.yaml').as_posix()}:"
    content = load_yaml(str(path)).get("stages", {})
    stages = {f"{prefix}{name}": stage for name, stage in content.items()}
    names = [name for name in current if name in stages and name != "track"]
    return [_parse_entry(name, current[name], stages[name]) for name in names]


def find_stale(entries: Sequence[Entry]) -> set[str]:
    """Stages that read other outputs than those of now: of a policy that was trained again, say.

    A folder around outputs is read as the outputs in it.
    """
    digests = {out.path: out.digest for entry in entries for out in entry.outs}
    stale = set[str]()
    while True:
        paths = {out.path for entry in entries if entry.stage in stale for out in entry.outs}
        around = paths.union(*(path.parents for path in paths))
        more = {
            entry.stage
            for entry in entries
            for dep in entry.deps
            if digests.get(dep.path, dep.digest) != dep.digest or dep.path in around
        }
        if more <= stale:
            return stale
        stale |= more


def _parse_entry(stage: str, description: str, content: dict[str, Any]) -> Entry:
    command = content["cmd"].splitlines()[-1]  # the line before is the same check for all
    results, artifacts = dict(content), {}
    for part in ("deps", "outs"):
        items = content.get(part, [])
        results[part] = [item for item in items if not _is_journal(stage, Path(item["path"]))]
        hashed = [item for item in items if "md5" in item]
        artifacts[part] = [Artifact(path=Path(item["path"]), digest=item["md5"]) for item in hashed]
    return Entry(
        stage=stage,
        description=description,
        command=command,
        params=_resolve_params(content.get("params", {}), parse_command(command)),
        **artifacts,
        input_key=identity.lock_key(content),
        lock_hash=dict_sha256(content, exclude=SIZES),
        result_hash=dict_sha256(results, exclude=SIZES),
    )


def _is_journal(stage: str, path: Path) -> bool:
    return runs.JOURNALS in path.parents or path == runs.journals_of(stage)


def parse_command(command: str) -> Row | None:
    """Row of `python -m stages train_grpo grpo --train grpo --preset ...`; None: it has none."""
    words = shlex.split(command)
    return parse_row(words[4:]) if words[1:3] == ["-m", "stages"] and len(words) > 5 else None


def _resolve_params(of_files: dict[str, dict[str, Any]], row: Row | None) -> dict[str, Any]:
    """Parameters of all files by dotted name, as the stage run has them (`params.load_config`).

    The row's values replace its section's, and the facts in data/prompts replace `auto`.
    """
    flat: dict[str, Any] = {}
    section = of_files.get(str(PARAMS_PATH), {})
    if row is not None and row.by in section:
        section = merge(section, {row.by: row.overrides})
        of_files = of_files | {str(PARAMS_PATH): section}
    content = read_yaml() | section
    facts = read_facts(content)
    for file, values in of_files.items():
        prefix = PREFIXES.get(file)
        whole = values if prefix is None else {prefix: values}
        if auto.is_embedded(content) or facts is not None:
            whole, _ = auto.resolve(whole, facts, content)
        # The section `sft` and a preset `sft` may share a key: null in a preset is the section's.
        for name, value in flatten(whole if prefix is None else whole[prefix]).items():
            flat[name] = flat.get(name) if value is None else value
    return flat


def read_record(entry: Entry) -> dict[str, Any] | None:
    """Content of an entry's run.json; on another machine than the run's, only the known fields.

    None for a stage without journals; None with a warning if the journals are missing, or are of
    other inputs than those in dvc.lock.
    """
    folder = entry.journals
    if folder is None:
        return None
    path = folder / runs.KEY_FILE
    if not path.exists():
        logger.warning("%s: no %s; `dvc checkout` restores it", entry.stage, path)
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["input_key"] != entry.input_key:
        message = (
            "%s: %s is of other inputs than dvc.lock's; not tracked: `dvc repro`, or `dvc checkout`"
        )
        logger.warning(message, entry.stage, path)
        return None
    if entry.record is not None:
        return json.loads((entry.record / "run.json").read_text(encoding="utf-8"))
    restored = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
    return {"execution_id": entry.input_key, "input_key": entry.input_key, "attempt": 1,
            "started": restored, "ended": restored} | dict.fromkeys(UNKNOWN)  # fmt: skip


def hash_entries(entries: list[Entry]) -> str:
    """Hash of all entries, which identifies the dvc.lock."""
    text = json.dumps({entry.stage: entry.lock_hash for entry in entries}, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
