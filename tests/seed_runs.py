"""Runs of a seed, without a stage: for tests of loops, and of the runtime that starts seeds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stages.loops.run import Run
from stages.rows import Row
from stages.runtime import seeds
from stages.runtime.journal import Journal
from stages.runtime.runs import StageRun


def make_run(
    *, seed: int = 0, rank: int = 0, folder: Path, log: Journal, outputs: tuple[Path, ...] = ()
) -> Run:
    """A run with scratch in `folder`; what it writes goes there too, unless `outputs` say where."""
    return Run(
        row=Row(name="toy"), config=None, seed=seed, rank=rank, outputs=outputs or (folder,),
        folder=folder, log=log,
    )  # fmt: skip


def for_each_seed(
    work: Callable[[Run], Any], numbers: list[int], run: StageRun, **options: int
) -> dict[int, Any]:
    """`seeds.for_each` without a row of params.yaml."""
    return seeds.for_each(work, make_run(folder=run.folder, log=run.log), numbers, run, **options)
