"""What every stage that trains a model reads, how its steps are taken, and what is written of them.

Beside the policy data/policies/<policy>/training/<seed>/: metrics.json, history.jsonl (the metrics
of each step) and, where there are any, rollouts.jsonl and checkpoints/step-<number>/.

The policies under checkpoints/ show what a run did on its way (accuracy on dev, divergence, what it
was paid for), and which of its policies to keep. The policy after the last step is none of them.

A run that was killed goes on from the last whole checkpoint of its state, which is in the scratch
folder of its inputs and in no output (`loops/state`, `runtime/checkpoints`).
"""

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from stages.config import Params
from stages.loops.record import HISTORY, POLICIES, POLICY, ROLLOUTS, Record, Save
from stages.loops.state import Metrics, State
from stages.loops.work import Step
from stages.models import sharding
from stages.models.device import ComputeConfig
from stages.models.row_policy import LoraConfig, ModelConfig
from stages.runtime import process
from stages.runtime.seeds import SeedRun

logger = logging.getLogger(__name__)


class TrainingConfig(Params):
    """What a stage that trains a model reads of params.yaml."""

    seeds: list[int]
    num_processes: int = Field(gt=0)
    """That train one model together, with a GPU each: each holds a part of its weights."""
    compute: ComputeConfig
    model: ModelConfig
    lora: LoraConfig


def per_seed(folder: Path, seed: int) -> Path:
    """The seed's own part of an input, where it has one for each; else the folder itself."""
    own = folder / str(seed)
    return own if own.is_dir() else folder


def take(
    steps: Iterator[Step],
    state: State,
    run: SeedRun,
    *,
    total: int | None,
    name: str = "",
    num_checkpoints: int = 0,
    save: Save | None = None,
) -> list[Metrics]:
    """Every step of a loop, tracked and written as it comes; the metrics of all of them.

    `steps` changes the model as it is asked for the next, and `state` with it: that of `resume`.
    After the `spaced` steps the policy is saved; `total` is None where a budget of tokens decides,
    and then none is. `name`: of one of several loops, whose end is kept for the next one's sake.

    A process that is asked to end does so between two steps, or within one that has changed
    nothing, once the state is on disk.
    """
    record = Record(run, state, name)
    policies = spaced(total or 0, num_checkpoints)
    # Several processes that wait for each other can only end together.
    anywhere = lambda: sharding.get_world_size() == 1 and not state.mixed  # noqa: E731
    try:
        with process.between(anywhere):
            for step in run.track(steps, total=total, done=state.step, label=name):
                record.add(step)
                if save is not None and state.step in policies:
                    record.save(save)
                state.mixed = False
                due, stopped = sharding.broadcast_from_rank0((record.due(), process.wanted()))
                if stopped:
                    raise process.Stopped(process.STATUS)
                if due:
                    record.keep()
            if name:
                record.keep()
    except process.Stopped:
        record.keep()
        logger.info("seed %d: ends as asked, after step %d", run.seed, state.step)
        raise
    finally:
        record.close()
    return record.history


def spaced(num_steps: int, num_checkpoints: int) -> list[int]:
    """After which steps, counted from 1, a checkpoint is written: evenly spaced, without the last.

        round(i * num_steps / (num_checkpoints + 1)),   i = 1 .. num_checkpoints

    Of a run shorter than that, every step but the last. 32 steps and 3 checkpoints: 8, 16, 24.
    """
    # Whole numbers: half a step is rounded up, never to the nearest even one.
    parts = 2 * (num_checkpoints + 1)
    found = {(2 * i * num_steps + parts // 2) // parts for i in range(1, num_checkpoints + 1)}
    return sorted(step for step in found if 0 < step < num_steps)


def read_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """The policies that `take` kept, by the number of their step."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        number = path.name.removeprefix(POLICY)
        if not path.name.startswith(POLICY) or not number.isdecimal():
            raise ValueError(
                f"expected folders named {POLICY}<number> in {folder}, found '{path.name}'. "
                f"Rerun the stage that trained this policy, which writes them alone."
            )
        found.append((int(number), path))
    return sorted(found)


def write(saved: Path, logged: Path, save: Save, run: SeedRun, *, rollouts: bool = False) -> None:
    """One seed's policy (`saved`), its steps and the policies on its way (`logged`).

    They are copied from the scratch folder, so that a run killed meanwhile still has them there.
    """
    save(saved)
    logged.mkdir(exist_ok=True)
    if run.rank:
        return
    scratch = Record.folder(run)
    for name in (HISTORY, *([ROLLOUTS] if rollouts else [])):
        shutil.copyfile(scratch / name, logged / name)
    if (scratch / POLICIES).exists():
        # The same files under a second name: none is ever written into.
        shutil.copytree(scratch / POLICIES, logged / POLICIES, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
