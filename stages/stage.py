"""Stage run: from the words of a row to its outputs.

    def main(*words: str) -> None:
        stage.run(train, words, Config, gpu=True)

`run` parses the row, claims the run (`runtime`), loads the `Config`, and calls `train(run)` for
each seed of the section `seeds`, side by side. The dictionary that `train` returns becomes the
seed's metrics.json. Outputs are written to a scratch folder and moved into place together, when
every seed is done; a failed run leaves the earlier outputs in place. A seed that an earlier run
with the same inputs finished is taken from its scratch folder (`runtime/finished_seeds`).
"""

import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stages import rows
from stages.config import AUTO, PRESET, Params
from stages.loops.run import LOOP, Run
from stages.params import load_config
from stages.records.metrics import average_metrics, read_with_last_step
from stages.rows import DATA
from stages.runtime import finished_seeds, gpu_slot, outputs, ranks, runs, seeds
from stages.runtime.headlines import METRICS
from stages.runtime.runs import StageRun

logger = logging.getLogger(__name__)

OUTPUTS = {stage: (f"{table}/{{}}",) for table, stage in rows.STAGES.items()} | {
    "train": ("policies/{}/model", "policies/{}/training"),
    "sample": ("samples/{}",),
    "evaluate": ("evaluations/{}",),
}
"""Stage -> its output folders for a row, below data/; metrics.json goes into the last."""
STAGE_BY_PREFIX = {"steps": "label_steps"}
"""First part of an entry point -> its stage in dvc.yaml, if the two differ."""


def run(
    work: Callable[[Run], dict[str, Any] | None],
    words: Sequence[str],
    config: type[Params] | Mapping[str, type[Params]],
    *,
    gpu: bool = False,
    per_seed: bool = True,
    prepare: Callable[[Run], None] | None = None,
) -> None:
    """Run a stage of dvc.yaml on the row in `words`, which begin with the entry point.

    Args:
        work: Does the stage's work for one seed, with empty output folders of that seed, and
            returns the metrics. Without `per_seed` it is called once, with the output folders of
            the row: its output is the same for all seeds.
        words: Entry point, then the words of the row.
        config: `Config` of the entry point, or a mapping from entry points to `Config`s.
        gpu: Whether each seed run takes a GPU, if there are any.
        per_seed: Whether the outputs depend on the seed.
        prepare: Checks that fail before any seed starts; called once, with the folders of the row.
    """
    entry_point, row = words[0], rows.parse_row(words[1:])
    assert entry_point in rows.ENTRY_POINTS, words
    stage = entry_point.partition("_")[0]
    stage = STAGE_BY_PREFIX.get(stage, stage)
    if isinstance(config, Mapping):
        config = config[entry_point]
    is_partial = finished_seeds.SEEDS in os.environ
    with ExitStack() as stack:
        stage_run = stack.enter_context(runs.start(f"{stage}@{row.name}", is_partial=is_partial))
        preset = row.preset if PRESET in config.model_fields else None
        overrides = {row.by: row.overrides} if row.by in config.model_fields else {}
        values: Any = load_config(config, preset, overrides=overrides)
        if stage in ("train", "reward"):
            values = settle_recomputation(values, stage_run.name)
        chosen = finished_seeds.read_choice(values.seeds)
        numbers: list[int] = values.seeds if chosen is None else chosen
        if is_partial and not per_seed:
            logger.info("%s: its output is the same for all seeds", stage_run.name)
            return
        paths = [DATA / path.format(row.name) for path in OUTPUTS[stage]]
        folders = open_folders(stack, stage_run.folder, paths, is_partial=is_partial)
        run = Run(
            row=row, config=values, seed=values.seeds[0], outputs=folders,
            folder=stage_run.folder, log=stage_run.log,
        )  # fmt: skip
        if prepare is not None:
            prepare(run)
        if not per_seed:
            with run.progress.shown(partial(stage_run.display.update, None)):
                write_metrics(run, work(run))
            show_headline(stage_run, run)
            return
        take_finished(stage_run, numbers, folders)
        seeds.for_each(
            partial(finish_seed, work, stage_run), run,
            [seed for seed in numbers if seed not in stage_run.earlier], stage_run,
            gpu=gpu, num_processes=getattr(values, "num_processes", 1),
            num_samplers=getattr(values, "num_samplers", 0),
        )  # fmt: skip
        finished_seeds.warn_of_devices([stage_run.folder / f"seed-{seed}" for seed in numbers])
        show_headline(stage_run, run)


def show_headline(stage_run: StageRun, run: Run) -> None:
    """Show the headline metrics of the row's, or its seeds', metrics.json in the closing line."""
    places = METRICS.get(stage_run.name.partition("@")[0], {})
    paths = sorted(run.output.rglob("metrics.json"))
    stage_run.display.headline = average_metrics(map(read_with_last_step, paths), places)


def settle_recomputation(config: Any, name: str) -> Any:
    """The `Config`, with `auto` of `compute.gradient_checkpointing` decided for this machine.

    Uses the doctor's forecast, in a separate process, since a GPU in use cannot be used in a fork.
    Recomputed activations have the same bits, so the stage does not depend on the forecast's code.
    On a CPU they are kept.
    """
    compute = getattr(config, "compute", None)
    if compute is None or compute.gradient_checkpointing != AUTO:
        return config
    is_on = False
    if gpu_slot.devices():
        command = [sys.executable, "-m", "stages.doctor", "--recompute", name]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        is_on = answer.stdout.splitlines()[-1:] != ["False"]
        if answer.returncode:
            logger.warning("%s: no forecast of its memory, so activations are recomputed", name)
    compute = compute.model_copy(update={"gradient_checkpointing": is_on})
    return config.model_copy(update={"compute": compute})


def open_folders(
    stack: ExitStack, scratch: Path, paths: Sequence[Path], *, is_partial: bool
) -> list[Path]:
    """Empty folders for a row's outputs, moved to `paths` when `stack` closes.

    torchrun's processes after the first, and runs of some of the seeds (`is_partial`), write into
    `scratch`: then the outputs of the row stay as they are.
    """
    if ranks.read_torchrun_rank():
        folders = [scratch / path.name for path in paths]
    elif is_partial:
        temporary = Path(stack.enter_context(TemporaryDirectory(dir=scratch)))
        folders = [temporary / path.name for path in paths]
    else:
        folders = [stack.enter_context(outputs.replace(path)) for path in paths]
    for folder in folders:
        folder.mkdir()
    return folders


def write_metrics(run: Run, metrics: dict[str, Any] | None) -> None:
    """Write a run's metrics.json, unless it has no metrics."""
    if metrics is not None:
        outputs.write_json(run.output / "metrics.json", metrics)


def take_finished(stage_run: StageRun, numbers: Sequence[int], folders: Sequence[Path]) -> None:
    """Move finished seeds from scratch into the output folders of the row."""
    if ranks.read_torchrun_rank() is not None:  # the other processes have other scratch folders
        return
    for seed in numbers:
        of_seed = [folder / str(seed) for folder in folders]
        scratch, identity = stage_run.folder / f"seed-{seed}", identify(stage_run, seed)
        record = finished_seeds.restore_seed(scratch, identity, of_seed, stage_run.start)
        if record is not None:
            logger.info("%s: seed %d was finished on %s", stage_run.name, seed, record["host"])
            stage_run.earlier[seed] = record


def finish_seed(
    work: Callable[[Run], dict[str, Any] | None], stage_run: StageRun, run: Run
) -> None:
    """Do the work of a seed, write its metrics, and keep it as finished.

    A ValueError if parameters or inputs were edited meanwhile: a finished seed belongs to its key.
    """
    started, clock = datetime.now(UTC).isoformat(), time.monotonic()
    metrics = work(run)
    if run.rank:
        return
    write_metrics(run, metrics)
    if ranks.read_torchrun_rank() is not None:
        return
    stage_run.check_unchanged()
    record = {**stage_run.start, "started": started, **runs.describe_end(clock)}
    try:
        finished_seeds.store_seed(
            run.folder, identify(stage_run, run.seed), run.outputs, run.log, record
        )
    except OSError as error:
        if finished_seeds.SEEDS in os.environ:
            raise
        logger.warning("seed %d is not kept as finished: %s", run.seed, error)
    else:
        shutil.rmtree(run.folder / LOOP, ignore_errors=True)  # its checkpoints


def identify(stage_run: StageRun, seed: int) -> dict[str, Any]:
    """Identity that a finished seed must have."""
    return {"stage": stage_run.name, "input_key": stage_run.start["input_key"], "seed": seed}
