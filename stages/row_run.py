"""The stage run of a row: its words and preset, the work of each seed, its outputs in their place.

    with row_run.start("label", words, Config) as job:
        job.each_seed(label, gpu=True)

runs `label(config, row, folder, run)` for each of the section `seeds`, side by side; `folder` is
the seed's own, and the metrics that `label` returns are its metrics.json. A stage with two outputs
is given a folder in each. All outputs take their places when the block ends, or none does.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stages import rows
from stages.config import PRESET, Params, load_config
from stages.rows import DATA, Row
from stages.runtime import outputs, ranks, runs, seeds
from stages.runtime.runs import Run
from stages.runtime.seeds import SeedRun

OUTPUTS = {
    "train": ("policies/{}/model", "policies/{}/training"),
    "pool": ("pools/{}",),
    "label": ("pairs/{}",),
    "label_steps": ("steps/{}",),
    "reward": ("rewards/{}",),
    "sample": ("samples/{}",),
    "evaluate": ("evaluations/{}",),
}
"""Stage -> the folders under data/ that it makes of a row; the last is that of the metrics."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A row at work."""

    row: Row
    config: Any
    """The entry point's `Config`."""
    run: Run
    folders: list[Path]
    """Its outputs, until they take their places."""

    def each_seed(self, work: Callable[..., dict[str, Any]], *, gpu: bool = False) -> None:
        """`work` for each seed, in as many processes as the `Config` says, if it does."""
        number = getattr(self.config, "num_processes", 1)
        of_seed = partial(self._of_seed, work)
        seeds.side_by_side(of_seed, self.config.seeds, self.run, gpu=gpu, num_processes=number)

    def _of_seed(self, work: Callable[..., dict[str, Any]], run: SeedRun) -> None:
        # What a process beside the first one writes is scratch.
        kept = [run.folder / one.name if run.rank else one for one in self.folders]
        own = [folder / str(run.seed) for folder in kept]
        for folder in own:
            folder.mkdir(parents=True, exist_ok=True)
        outputs.write_json(own[-1] / "metrics.json", work(self.config, self.row, *own, run))


@contextmanager
def start(stage: str, words: tuple[str, ...], config: type[Params]) -> Iterator[Job]:
    """Run a stage of the row that `words` name, with empty folders for its outputs.

    A process that torchrun started beside the first has folders that are forgotten.
    """
    row = rows.parse_row(words)
    with ExitStack() as stack:
        run = stack.enter_context(runs.start(f"{stage}@{row.name}"))
        read = load_config(config, row.preset if PRESET in config.model_fields else None)
        paths = [DATA / path.format(row.name) for path in OUTPUTS[stage]]
        if ranks.launched():
            folders = [run.folder / path.name for path in paths]
        else:
            folders = [stack.enter_context(outputs.replace(path)) for path in paths]
        for folder in folders:
            folder.mkdir()
        yield Job(row=row, config=read, run=run, folders=folders)
