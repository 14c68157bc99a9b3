"""The frame of a stage's work: who it is, what it logs, what it leaves behind.

Contract: nothing in this package can change an output. It seeds nothing, draws no random
number that a stage could see and hands nothing to the work but paths.
"""

import json
import logging
import resource
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from stages.runtime import (
    gpu_slot,
    identity,
    journal,
    outputs,
    preflight,
    process,
    start_up,
    surroundings,
)

logger = logging.getLogger(__name__)

RUNS = Path("data/runs")
"""Run records: the only outputs that hold times, host names and random ids."""
STUDIES = Path("data/studies")
"""Each study's folder holds its own."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A stage at work."""

    execution: identity.Execution
    folder: Path
    """`.pipe/<stage>-<key>/`: survives a kill, is removed on success; never an output."""
    journal: journal.Journal

    def log(self, index: int, metrics: Mapping[str, int | float]) -> None:
        """Write the metrics of step `index` to the journal, at once."""
        self.journal.log(index, metrics)


@contextmanager
def start(stage: str, *, gpu: bool = False) -> Iterator[Run]:
    """Run a stage.

    On success the run record, `data/runs/<stage>/` or `data/studies/<study>/run/`, holds run.json
    and the journals: that of the stage, and one for each seed (`seeds.side_by_side`). On failure
    `.pipe/<stage>-<key>/` stays, with failed.json; the next start with the same inputs takes it
    over with the same execution id.

    Args:
        stage: the DVC stage's name, variant included (`sample@sft`), and of a study with its file
            before it (`stages/studies/dvc.yaml:search`).
        gpu: hold a GPU while running, where there is one; enter before CUDA is used. A stage that
            works for several seeds leaves it to them.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S"
    )
    start_up.imported()
    process.die_with_dvc(stage)
    preflight.check()
    with ExitStack() as stack:
        execution, folder = stack.enter_context(identity.claim(stage))
        failure = folder / "failed.json"
        failure.unlink(missing_ok=True)
        if execution.attempt > 1:
            logger.info("%s: attempt %d of an unfinished run", stage, execution.attempt)
        stack.enter_context(gpu_slot.take(wanted=gpu))
        begin, clock = datetime.now(UTC), time.monotonic()
        record = asdict(execution) | {"started": begin.isoformat()} | surroundings.describe()
        # What is imported by now is not the work's: the peak's growth over it is.
        record["memory_at_start_bytes"] = surroundings.memory_bytes("VmRSS")
        try:
            with journal.Journal(folder / "journal.jsonl") as written:
                yield Run(execution=execution, folder=folder, journal=written)
            _write(record_of(stage), folder, record | _end(clock))
        except BaseException as error:
            reason = {"error": f"{type(error).__name__}: {error}"}
            _dump(failure, record | _end(clock) | reason)
            raise
        shutil.rmtree(folder)


def record_of(stage: str) -> Path:
    """The folder of a stage's run record."""
    name = Path(identity.name_of(stage).replace("@", "/"))
    return RUNS / name if ":" not in stage else STUDIES / name / "run"


def _end(clock: float) -> dict[str, Any]:
    return {
        "ended": datetime.now(UTC).isoformat(),
        "seconds": round(time.monotonic() - clock, 3),
        "peak_memory_bytes": surroundings.memory_bytes("VmHWM"),
        # of the largest process of a seed, where there were any
        "peak_memory_of_a_seed_bytes": 1024
        * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
        **surroundings.device(),
    }


def _write(path: Path, folder: Path, record: dict[str, Any]) -> None:
    with outputs.replace(path) as temporary:
        temporary.mkdir()
        _dump(temporary / "run.json", record)
        shutil.copyfile(folder / "journal.jsonl", temporary / "journal.jsonl")
        for one in sorted(folder.glob("seed-*/journal.jsonl")):
            shutil.copyfile(one, temporary / f"journal-{one.parent.name}.jsonl")


def _dump(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
