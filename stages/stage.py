"""Stage run: from the words of a row to its outputs.

    def main(*words: str) -> None:
        stage.run(train, words, Config, gpu=True)

`run` parses the row, claims the run (`runtime`), loads the `Config`, and calls `train(run)` for
each seed of the section `seeds`, side by side. The dictionary that `train` returns becomes the
seed's metrics.json. Outputs are written to a scratch folder and moved into place together, when
every seed is done; a run that fails leaves the outputs of before.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from stages import rows
from stages.config import PRESET, Params
from stages.loops.run import Run
from stages.params import load_config
from stages.rows import DATA
from stages.runtime import outputs, ranks, runs, seeds
from stages.runtime.journal import Journal
from stages.runtime.progress import Progress

OUTPUTS = {
    "train": ("policies/{}/model", "policies/{}/training"),
    "pool": ("pools/{}",),
    "label": ("pairs/{}",),
    "label_steps": ("steps/{}",),
    "reward": ("rewards/{}",),
    "sample": ("samples/{}",),
    "evaluate": ("evaluations/{}",),
    "environment": ("environments/{}",),
    "play": ("episodes/{}",),
}
"""Stage -> its output folders for a row, below data/; metrics.json goes into the last."""
STAGES = {"steps": "label_steps"}
"""First part of an entry point -> its stage in dvc.yaml, where the two differ."""


def run(
    work: Callable[[Run], dict[str, Any] | None],
    words: Sequence[str],
    config: type[Params] | Mapping[str, type[Params]],
    *,
    gpu: bool = False,
    per_seed: bool = True,
    prepare: Callable[[Run], None] | None = None,
) -> None:
    """Run a stage of dvc.yaml on the row that `words` name, an entry point before it.

    Args:
        work: Does the stage's work for one seed, with empty output folders of that seed, and
            returns the metrics. Without `per_seed` it is called once, with the output folders of
            the row: its output is the same for all seeds.
        words: Entry point and words of the row.
        config: `Config` of the entry point, or a mapping from entry points to theirs.
        gpu: Whether each seed run takes a GPU, where there are any.
        per_seed: Whether the outputs depend on the seed.
        prepare: Checks that fail before any seed starts; called once, with the folders of the row.
    """
    entry_point, row = words[0], rows.parse_row(words[1:])
    assert entry_point in rows.ENTRY_POINTS, words
    stage = entry_point.partition("_")[0]
    stage = STAGES.get(stage, stage)
    if isinstance(config, Mapping):
        config = config[entry_point]
    with ExitStack() as stack:
        stage_run = stack.enter_context(runs.start(f"{stage}@{row.name}"))
        preset = row.preset if PRESET in config.model_fields else None
        values: Any = load_config(config, preset, sizes={row.by: row.sizes} if row.sizes else {})
        paths = [DATA / path.format(row.name) for path in OUTPUTS[stage]]
        if ranks.launched():  # torchrun's processes after the first write into scratch
            folders = [stage_run.folder / path.name for path in paths]
        else:
            folders = [stack.enter_context(outputs.replace(path)) for path in paths]
        for folder in folders:
            folder.mkdir()

        def seed_run(
            *, seed: int, rank: int, folder: Path, log: Journal, progress: Progress
        ) -> Run:
            of_seed = [(folder / path.name if rank else path) / str(seed) for path in folders]
            for path in of_seed:
                path.mkdir(parents=True, exist_ok=True)
            return Run(
                row=row, config=values, seed=seed, rank=rank, outputs=of_seed, folder=folder,
                log=log, progress=progress,
            )  # fmt: skip

        whole = Run(
            row=row, config=values, seed=values.seeds[0], outputs=folders,
            folder=stage_run.folder, log=stage_run.log,
        )  # fmt: skip
        if prepare is not None:
            prepare(whole)
        if not per_seed:
            with whole.progress.shown(partial(stage_run.display.update, None)):
                results = {whole.output: work(whole)}
        else:
            num_processes = getattr(values, "num_processes", 1)
            of_seeds = seeds.for_each(
                work, seed_run, values.seeds, stage_run, gpu=gpu, num_processes=num_processes
            )
            results = {whole.output / str(seed): metrics for seed, metrics in of_seeds.items()}
        for folder, metrics in results.items():
            if metrics is not None:
                outputs.write_json(folder / "metrics.json", metrics)
