"""Stage run: its scratch folder and journals, and the run record of host, versions and times.

Contract: nothing in this package can change an output, except the form of data/journals, which it
writes. It seeds nothing, draws no random number that a stage could see, passes only paths to the
work, and never reads a record back.
"""

import json
import logging
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import stages
from stages.runtime import (
    identity,
    journal,
    outputs,
    preflight,
    process,
    progress,
    ranks,
    versions,
)
from stages.runtime.checkout import locate_checkout
from stages.runtime.progress import Display
from stages.runtime.usage import USAGE

logger = logging.getLogger(__name__)

RUNS = Path("data/runs")
"""Run records: times, host names, random ids. Not outputs, so that equal results have equal
digests."""
JOURNALS = Path("data/journals")
"""Journals without times: outputs, so that they are restored with a stage on another machine."""
KEY_FILE = "key.json"
"""File beside the journals with the input key, which identifies their run record."""
VECTORS = frozenset(
    {"sse4_2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "amx_tile"}
)
"""Flags of /proc/cpuinfo by which libraries choose vector width, and so the order of sums."""


@dataclass(frozen=True, kw_only=True)
class StageRun:
    """Stage run, in the process that DVC started."""

    name: str
    """DVC's name of the stage."""
    folder: Path
    """Scratch `.pipe/<stage>-<key>/`: survives a kill, removed when the outputs are safe."""
    log: journal.Journal
    """Journal of the stage."""
    display: Display
    """Display of the seed runs' progress."""
    check_unchanged: Callable[[], None] = lambda: None
    """See `identity.check_unchanged`."""
    start: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of run.json that are known at the start."""
    earlier: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    """Records of seeds that were finished before (`finished_seeds`), perhaps elsewhere."""


@contextmanager
def start(stage: str, *, is_partial: bool = False) -> Iterator[StageRun]:
    """Claim and record a stage run.

    On success the run record (`find_records`) has run.json, the journals of the stage and of each
    seed (`seeds.for_each`), and the resource usage of each seed run (`usage`); the folder
    `journals_of` has the journals without times. After a failure the scratch in `.pipe/` stays,
    with failed.json, for the next start with the same inputs.

    `stage` is DVC's name (`sample@sft`); outside ./dvc.yaml it begins with its file
    (`studies/dvc.yaml:search`). Of torchrun's processes only the first leaves a record. A partial
    run (`is_partial`) leaves none: it finishes some seeds, which a later run joins.
    """
    is_quiet = process.is_dvc_quiet()
    display = progress.make_display(
        stage, is_shown=not ranks.read_torchrun_rank(), is_quiet=is_quiet
    )
    logging.basicConfig(
        level=logging.WARNING if is_quiet else logging.INFO,
        format="%(asctime)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    # DVC is queried for the stage's identity: it would print its bars and lines a second time.
    logging.getLogger("dvc.progress").setLevel(logging.CRITICAL)
    logging.getLogger("dvc").handlers.clear()
    if ranks.read_torchrun_rank():
        versions.check()  # as `preflight` does for the first rank
        process.ignore()  # the first rank decides when all end
        with TemporaryDirectory() as scratch:
            folder = Path(scratch)
            with journal.writing(folder / "journal.jsonl") as log:
                yield StageRun(name=stage, folder=folder, log=log, display=display)
        return
    process.die_with_dvc(stage)
    preflight.check()
    with ExitStack() as stack:
        stack.enter_context(process.listening())
        execution, folder, check_unchanged = stack.enter_context(
            identity.claim(stage, is_partial=is_partial)
        )
        failure = folder / "failed.json"
        failure.unlink(missing_ok=True)
        if execution.attempt > 1:
            logger.info("%s: attempt %d of an unfinished run", stage, execution.attempt)
        begin, clock = datetime.now(UTC), time.monotonic()
        earlier: dict[int, dict[str, Any]] = {}
        record = asdict(execution) | {"started": begin.isoformat()} | surroundings()
        try:
            with journal.writing(folder / "journal.jsonl") as log:
                yield StageRun(
                    name=stage, folder=folder, log=log, display=display,
                    check_unchanged=check_unchanged, start=record, earlier=earlier,
                )  # fmt: skip
            check_unchanged()
            if not is_partial:
                end = join_records(earlier, record | describe_end(clock))
                _leave_record(execution, folder, end)
        except BaseException as error:
            display.erase()
            trace = "".join(traceback.format_exception(error))
            reason = {"error": f"{type(error).__name__}: {error}", "traceback": trace}
            _dump(failure, record | describe_end(clock) | reason)
            raise
        identity.leave(execution, folder, is_partial=is_partial)
    display.end()


def _leave_record(execution: identity.Execution, folder: Path, record: dict[str, Any]) -> None:
    """Write the run record, and the journals without times, from the scratch of the run."""
    journals = {"journal.jsonl": folder / "journal.jsonl"}
    for path in sorted(folder.glob("seed-*/journal.jsonl")):
        journals[f"journal-{path.parent.name}.jsonl"] = path
    execution_name = f"{execution.input_key[:16]}-{execution.execution_id[:8]}"
    with outputs.replace(_folder_of_records(execution.stage) / execution_name) as temporary:
        temporary.mkdir()
        _dump(temporary / "run.json", record)
        for name, path in journals.items():
            shutil.copyfile(path, temporary / name)
        for path in sorted(folder.glob(f"seed-*/{USAGE}")):
            shutil.copyfile(path, temporary / f"{path.stem}-{path.parent.name}.jsonl")
    with outputs.replace(journals_of(execution.stage)) as temporary:
        temporary.mkdir()
        _dump(temporary / KEY_FILE, {"input_key": execution.input_key, "stage": execution.stage})
        for name, path in journals.items():
            journal.copy_without_times(path, temporary / name)


def journals_of(stage: str) -> Path:
    """Folder of a stage's journals, an output; of `studies/dvc.yaml:a`, data/studies/a/journal."""
    file, _, name = stage.rpartition(":")
    folder = Path(name.replace("@", "/"))
    return JOURNALS.parent / Path(file).parent / folder / "journal" if file else JOURNALS / folder


def find_records(stage: str, input_key: str) -> list[Path]:
    """Run records of a stage's executions with these inputs on this machine, oldest first."""
    records = _folder_of_records(stage).glob(f"{input_key[:16]}-*/run.json")
    ended = {path.parent: json.loads(path.read_text(encoding="utf-8"))["ended"] for path in records}
    return sorted(ended, key=ended.__getitem__)


def _folder_of_records(stage: str) -> Path:
    """Folder of a stage's run records; of `studies/dvc.yaml:a`, data/runs/studies/a."""
    file, _, name = stage.rpartition(":")
    return locate_checkout() / RUNS / Path(file).parent / name.replace("@", "/")


def _dump(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def surroundings() -> dict[str, Any]:
    """Fields of run.json that do not change while a stage runs."""
    commit, dirty = git_state()
    processor = stages.processor()
    return {
        "git_commit": commit,
        "git_dirty": dirty,
        "host": platform.node(),
        "python": platform.python_version(),
        "packages": versions.read_installed(),
        "cpu": {
            "vendor": processor.get("vendor_id"),
            "model": processor.get("model name", platform.processor()),
            "flags": sorted(stages.flags() & VECTORS),
        },
        "rounding": stages.ROUNDING,
        "threads": stages.THREADS,
    }


def git_state() -> tuple[str | None, bool | None]:
    """Commit, and whether the working tree differs from it.

    dvc.lock is ignored: the pipeline writes it while it runs. (None, None) outside a repository or
    before the first commit.
    """
    # Optional locks would collide with stages that run at the same time.
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=False, env=environment
        )

    if shutil.which("git") is None:
        return None, None
    if (head := git("rev-parse", "--verify", "HEAD")).returncode:
        return None, None
    status = git("status", "--porcelain", "--", ".", ":!dvc.lock")
    return head.stdout.strip(), bool(status.stdout.strip())


def join_records(
    earlier: Mapping[int, Mapping[str, Any]], record: dict[str, Any]
) -> dict[str, Any]:
    """Record of a run that reused finished seeds, with their records in `seeds`.

    Its start is that of the earliest seed. Its seconds are those in which at least one machine
    worked on it: concurrent seeds count once, as in a run of all; waiting does not count.
    """
    if not earlier:
        return record
    every = sorted(
        [datetime.fromisoformat(each[name]).timestamp() for name in ("started", "ended")]
        for each in (*earlier.values(), record)
    )
    seconds, until = 0.0, every[0][0]
    for started, ended in every:
        seconds += max(0.0, ended - max(started, until))
        until = max(until, ended)
    first = min(str(each["started"]) for each in (*earlier.values(), record))
    largest = max(each["peak_memory_bytes"] for each in (*earlier.values(), record))
    return record | {
        "started": first,
        "seconds": round(seconds, 3),
        "peak_memory_bytes": largest,
        "seeds": {str(seed): dict(of_seed) for seed, of_seed in earlier.items()},
    }


def describe_end(clock: float) -> dict[str, Any]:
    """Fields of run.json that are known at the end; does not import torch to look for a GPU."""
    torch, device = sys.modules.get("torch"), {"device": "cpu"}
    if torch is not None and torch.cuda.is_initialized():
        device = {
            "device": torch.cuda.get_device_name(),
            "peak_gpu_memory_bytes": torch.cuda.max_memory_allocated(),
        }
    of_children = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {
        "ended": datetime.now(UTC).isoformat(),
        "seconds": round(time.monotonic() - clock, 3),
        # of the largest process: this one, or that of a seed
        "peak_memory_bytes": max(peak_memory_bytes(), of_children),
        **device,
    }


def peak_memory_bytes() -> int:
    """Largest resident size of this process so far (VmHWM, proc(5)); 0 if the kernel reports none.

    The maximum of `getrusage` may be a parent's.
    """
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    sizes = (int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return next(sizes, 0)
