"""Identity of a stage run: its input key, its execution id, its attempt.

The input key is DVC's own run-cache key, the hash of command, dependencies, parameters and output
paths, computed before the stage works. Two runs with equal keys would write equal outputs, so only
they may share a folder under `.pipe/`.
"""

import fcntl
import json
import logging
import os
import re
import shlex
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil
from dvc.exceptions import DvcException, NotDvcRepoError
from dvc.repo import Repo
from dvc.schema import COMPILED_LOCKFILE_SCHEMA
from dvc.stage.exceptions import StageFileDoesNotExistError, StageNotFound
from dvc.stage.serialize import to_single_stage_lockfile
from dvc.utils import dict_sha256
from dvc.utils.serialize import YAMLFileCorruptedError, parse_yaml
from dvc.utils.strictyaml import YAMLSyntaxError, YAMLValidationError
from voluptuous import Invalid

from stages.runtime import intact, outputs, process
from stages.runtime.outputs import PIPE

logger = logging.getLogger(__name__)

WRITING_SECONDS = 10.0
EXECUTION, ENDED = "exec.json", "ended"
PARTIAL = "some seeds"
"""Content of the file `ended` after a run of only some seeds."""
NUM_KEPT = 3
"""Number of scratch folders kept for a stage: that of the present inputs, and the latest ones of
other inputs, to which an edit may return."""


@dataclass(frozen=True, kw_only=True)
class Execution:
    """One execution of a stage, over all its attempts."""

    execution_id: str
    stage: str
    input_key: str
    attempt: int
    """From 1, increased at each further start: after a kill, a failure, or a run of some seeds."""


def lock_key(entry: dict[str, Any]) -> str:
    """The run-cache key of a stage's entry of dvc.lock.

    DVC hashes the entry as sorted JSON, without sizes, its outputs reduced to their paths.
    """
    paths = [output["path"] for output in entry.get("outs", [])]
    return dict_sha256(dict(entry) | {"outs": paths}, exclude=["size", "nfiles"])


def name_of(stage: str) -> str:
    """A stage's name without its file: DVC writes `<file>:<name>` unless that is ./dvc.yaml."""
    return stage.rpartition(":")[2]


def dvc_stage(stage: str) -> Any:
    """DVC's object for `stage`, from ./dvc.yaml or the file in its name; None: no such stage.

    None also if this process has another command line than the stage, as when a user starts it. A
    ValueError if an input of the stage does not exist or is damaged, or if its code or its row was
    edited since dvc started.
    """
    try:
        with closing(Repo(".")) as repo:
            loaded = _load(repo, stage)
            loaded.save_deps()
            intact.check_sources(str(dep.def_path) for dep in loaded.deps)
            intact.check_inputs(loaded)
            lines = (sys.argv[1:], shlex.split(loaded.cmd))
            words, expected = (" ".join(["", *line, ""]) for line in lines)
            if words in expected:
                return loaded
            if os.environ.get("DVC_STAGE") == stage:
                raise ValueError(f"{stage} was edited since dvc started: run `dvc repro` again")
            return None
    except (NotDvcRepoError, StageNotFound, StageFileDoesNotExistError):
        return None
    except DvcException as error:
        raise ValueError(
            f"stage '{stage}' cannot be identified: {error}. `dvc repro {stage}` makes its inputs."
        ) from error


def input_key(loaded: Any) -> str:
    """The key of a DVC stage, whose inputs DVC has hashed."""
    return lock_key(to_single_stage_lockfile(loaded))


def check_unchanged(loaded: Any, key: str) -> None:
    """Refuse a result whose parameters or inputs were edited since the stage began with key `key`.

    DVC hashes them again after the stage, and would record the result as that of the new inputs.
    """
    if loaded is not None:
        loaded.save_deps()
        intact.check_sources(
            path for dep in loaded.deps if (path := str(dep.def_path)) in intact.RAW_FILES
        )
        if input_key(loaded) != key:
            raise ValueError(
                f"parameters or inputs of {loaded.addressing} were edited while it ran: "
                f"`dvc repro` runs it with the new ones, or with the old ones from its last "
                f"checkpoint on"
            )


def find_present_key(stage: str) -> str | None:
    """The key of a stage's present inputs; empty: the stage no longer exists.

    None: an input does not exist, or dvc.yaml cannot be read.
    """
    try:
        with closing(Repo(".")) as repo:
            loaded = _load(repo, stage)
            loaded.save_deps()
            return input_key(loaded)
    except (NotDvcRepoError, StageNotFound, StageFileDoesNotExistError):
        return ""
    except DvcException:
        return None


def _load(repo: Repo, stage: str) -> Any:
    """DVC's stage; reads dvc.lock again if another dvc is writing it, which is not atomic."""
    end = time.monotonic() + WRITING_SECONDS
    while True:
        try:
            return repo.stage.load_one(stage.rpartition(":")[0] or None, name_of(stage))
        except (YAMLSyntaxError, YAMLValidationError) as error:
            if time.monotonic() > end or ".lock" not in str(error):
                raise
            time.sleep(0.1)


@contextmanager
def claim(
    stage: str, *, is_partial: bool = False
) -> Iterator[tuple[Execution, Path, Callable[[], None]]]:
    """Context with the execution of `stage`, its locked folder `.pipe/<stage>-<key>/`, and a check.

    If the folder exists, its execution was killed or failed, or dvc has not recorded its outputs:
    this run continues it under the same id. Outside a DVC pipeline the key is random, so every run
    is new. The check is `check_unchanged`. A ValueError if another process executes the same stage,
    or if `is_partial` and this process does not run the stage's command in dvc.yaml: no later run
    could join its seeds.
    """
    loaded = dvc_stage(stage)
    if loaded is None and is_partial:
        raise ValueError(
            f"expected the command of {stage} in dvc.yaml, found `{shlex.join(sys.argv[1:])}`: "
            f"`python -m flows.seeds` runs a stage for some of its seeds"
        )
    key = uuid.uuid4().hex * 2 if loaded is None else input_key(loaded)
    name = name_of(stage)
    PIPE.mkdir(exist_ok=True)
    with (PIPE / f"{name}.lock").open("a+") as lock:
        _hold(lock, stage)
        _sweep(name, None if loaded is None else key)
        folder = PIPE / f"{name}-{key[:16]}"
        folder.mkdir(exist_ok=True)
        record = folder / EXECUTION
        execution = Execution(execution_id=uuid.uuid4().hex, stage=stage, input_key=key, attempt=1)
        if (previous := read_execution(record)) is not None and previous.input_key == key:
            execution = replace(previous, attempt=previous.attempt + 1)
        with outputs.replace(record) as temporary:
            temporary.write_text(json.dumps(asdict(execution), sort_keys=True), encoding="utf-8")
        (folder / ENDED).unlink(missing_ok=True)
        yield execution, folder, partial(check_unchanged, loaded, key)


def leave(execution: Execution, folder: Path, *, is_partial: bool = False) -> None:
    """Mark the work as done: `_sweep` removes the folder when dvc has recorded the outputs.

    A kill before that costs the time since the last checkpoint, not the whole work. After a run of
    some seeds only the folder has their results.
    """
    if is_partial:
        (folder / ENDED).write_text(PARTIAL, encoding="utf-8")
    elif os.environ.get("DVC_STAGE") == execution.stage:
        (folder / ENDED).touch()
    else:
        shutil.rmtree(folder)


def _hold(lock: IO[str], stage: str) -> None:
    """Lock the stage's file; waits a moment for a holder whose dvc has ended."""
    end = time.monotonic() + process.SECONDS_TO_END + process.SECONDS_TO_SAVE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > end or not _is_orphan(lock):
                raise ValueError(
                    f"stage '{stage}' is running already, with {lock.name}: wait for it, or end it"
                ) from None
            time.sleep(0.1)
    lock.truncate(0)
    lock.write(f"{os.getpid()} {os.getppid()}")
    lock.flush()


def _is_orphan(lock: IO[str]) -> bool:
    """Whether the process that started the holder of the lock is gone."""
    lock.seek(0)
    holder, _, parent = lock.read().partition(" ")
    with suppress(psutil.NoSuchProcess, ValueError):
        return psutil.Process(int(holder)).ppid() != int(parent)
    return True


def _sweep(stage: str, key: str | None) -> None:
    """Remove the folders of executions whose outputs are in dvc.lock, or will soon be replaced.

    Seeds that are to be joined stay: dvc.lock may have an older run of these inputs. `key`: of the
    inputs that the stage starts with; None: dvc does not run the stage, so no folder is replaced.
    """
    for folder in {ended.parent for ended in PIPE.glob(f"*/{ENDED}")}:
        execution = read_execution(folder / EXECUTION)
        if (
            execution is None
            or (not _is_partial(folder) and recorded(execution))
            or (key and name_of(execution.stage) == stage and execution.input_key != key)
        ):
            with suppress(OSError):  # another process removes it, too
                folder.rename(f"{folder}.gone")
                if execution is not None and _is_partial(Path(f"{folder}.gone")):
                    logger.warning("finished seeds of other inputs are removed: %s", folder)
    folders = find_folders(stage) if key else []
    others = [folder for folder in folders if folder.name != f"{stage}-{key}"[: len(stage) + 17]]
    for folder in others[NUM_KEPT - 1 :]:
        logger.info("removed: %s, the folder of a run with other inputs", folder)
        shutil.rmtree(folder, ignore_errors=True)
    for gone in PIPE.glob("*.gone"):
        shutil.rmtree(gone, ignore_errors=True)


def find_folders(stage: str = "") -> list[Path]:
    """The scratch folders of a stage, or of all stages, latest start first."""
    pattern = re.compile(rf"{re.escape(stage) or '.+'}-[0-9a-f]{{16}}")

    def started(folder: Path) -> float:
        for path in (folder / EXECUTION, folder):
            with suppress(FileNotFoundError):
                return path.stat().st_mtime
        return 0.0  # another process has removed it

    folders = [path for path in PIPE.glob("*-*") if pattern.fullmatch(path.name)]
    return sorted(folders, key=started, reverse=True)


def _is_partial(folder: Path) -> bool:
    with suppress(FileNotFoundError):  # another process removes it, too
        return (folder / ENDED).read_text(encoding="utf-8") == PARTIAL
    return False


def recorded(execution: Execution) -> bool:
    """Whether dvc.lock has the outputs of the execution's inputs."""
    path = Path(execution.stage.rpartition(":")[0] or "dvc.yaml").with_suffix(".lock")
    try:
        lock: Any = COMPILED_LOCKFILE_SCHEMA(parse_yaml(path.read_text(encoding="utf-8"), path))
    except (FileNotFoundError, UnicodeDecodeError, YAMLFileCorruptedError, Invalid):
        return False  # there is none, or another dvc is writing it
    entry = lock.get("stages", {}).get(name_of(execution.stage))
    return entry is not None and lock_key(entry) == execution.input_key


def read_execution(record: Path) -> Execution | None:
    """The execution of a scratch folder, from its file `EXECUTION`; None: missing or incomplete."""
    with suppress(FileNotFoundError, ValueError, TypeError):  # missing or incomplete
        return Execution(**json.loads(record.read_text(encoding="utf-8")))
    return None
