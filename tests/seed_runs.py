"""Runs of a seed, without a stage: for tests of loops, and of the runtime that starts seeds."""

from pathlib import Path

from stages.loops.run import Run
from stages.rows import Row
from stages.runtime.journal import Journal
from stages.runtime.progress import Progress


def make_run(
    *,
    seed: int = 0,
    rank: int = 0,
    folder: Path,
    log: Journal,
    progress: Progress | None = None,
    outputs: tuple[Path, ...] = (),
) -> Run:
    """A run with scratch in `folder`; what it writes goes there too, unless `outputs` say where."""
    return Run(
        row=Row(name="toy"), config=None, seed=seed, rank=rank, outputs=outputs or (folder,),
        folder=folder, log=log, progress=progress or Progress(),
    )  # fmt: skip
