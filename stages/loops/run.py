"""Seed run: its row, config, seed, output folders, scratch folder, journal and progress.

The scratch folder belongs to the inputs of the run (`runtime/identity`): other inputs have another
folder. It survives a kill, and is deleted once the outputs are safe. A killed run resumes from it:
from the last checkpoint of a training loop (`loops/resume`), or from the parts of other work, such
as sampling, that are already in `parts/`.

Importing this file imports no torch, which takes a second: stages without a model do not need it.
"""

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stages import meter, rows
from stages.records import lines
from stages.rows import Row
from stages.runtime import checkpoints, journal, outputs, process, usage
from stages.runtime.journal import Journal
from stages.runtime.progress import Progress, Show

if TYPE_CHECKING:
    from torch import Tensor

    from stages.loops.state import Metrics, State
    from stages.loops.work import Step

logger = logging.getLogger(__name__)

LOOP = "loop"
"""Subfolder of the scratch folder for training loops: checkpoints, history, rollouts, policies."""
REFERENCE, STATES = "reference", "states"
"""Its subfolders of checkpoints: tensors that are computed once (`Run.once`); states of a loop."""
Save = Callable[[Path], None]
"""Function that writes the policy with its present weights to a path (`policy.save_model`)."""
ItemT = TypeVar("ItemT")
WATCHED = {
    "loss/nll": "loss", "loss/preference": "loss", "loss/bradley_terry": "loss",
    "loss/outcome": "loss", "loss/step_labels": "loss", "reward/mean": "reward",
    "kl/sequence": "KL", "loss/forward_kl": "KL", "length/mean": "length",
    "optim/grad_norm": "gradient",
    "margin/accuracy": "right", "pairs/accuracy": "right", "outcomes/accuracy": "right",
    "steps/accuracy": "right", "reward/accuracy": "right", "completions/right": "right",
    "episode/success": "success", "length/truncated": "truncated",
}  # fmt: skip
"""Metric of a step -> its name in a line of progress, in this order."""


@dataclass(kw_only=True, slots=True)
class Run:
    """Stage run of a row, with the row's output folders; or a seed run, opened from it."""

    row: Row
    config: Any
    """The entry point's `Config`."""
    seed: int
    """Seed of a seed run; the first seed of a stage run."""
    rank: int = 0
    """Rank among the processes that train one model; ranks after 0 write no output."""
    outputs: Sequence[Path]
    """Output folders; metrics.json is written into the last one."""
    folder: Path
    """Scratch folder of this row, or of this seed and rank, that survives a kill; no output."""
    log: Journal
    """Journal, called with the metrics of a step; ranks after 0 have theirs in scratch."""
    progress: Progress = field(default_factory=Progress)
    """Progress of this run."""
    _loop: str = ""
    _state: Any = None

    def __post_init__(self) -> None:
        self.progress.begin(read_counts=lambda: meter.COUNTS)

    @contextmanager
    def of_seed(self, seed: int, rank: int = 0, show: Show | None = None) -> Iterator["Run"]:
        """Seed run of this row, with its folders and journal; `show` is called with its progress.

        Ranks after 0 have separate scratch folders, write their outputs there, and show nothing.
        """
        folder = self.folder / f"seed-{seed}"
        if rank:
            folder /= f"rank-{rank}"
        of_row = [folder / path.name for path in self.outputs] if rank else self.outputs
        of_seed = [path / str(seed) for path in of_row]
        for path in (folder, *of_seed):
            path.mkdir(parents=True, exist_ok=True)
        progress = Progress()
        with (
            journal.writing(folder / "journal.jsonl") as log,
            usage.sampling(folder / usage.USAGE),
            nullcontext() if show is None or rank else progress.shown(show),
        ):
            yield replace(
                self, seed=seed, rank=rank, outputs=of_seed, folder=folder, log=log,
                progress=progress,
            )  # fmt: skip

    @property
    def source(self) -> Path:
        """The input that the row names in `on`; if it has a part for each seed, this seed's."""
        return rows.seed_folder(self.row.source, self.seed)

    @property
    def output(self) -> Path:
        """The folder of metrics.json; for a trained policy the training's, not the model's."""
        return self.outputs[-1]

    @property
    def model_path(self) -> Path:
        """The folder of a trained policy's weights."""
        return self.outputs[0]

    def write(self, name: str, rows: Iterable[Any]) -> None:
        """Write rows (dataclasses) into a file of the output folder, one JSON line each."""
        lines.write_lines(self.output / name, rows)

    def track(
        self,
        items: Iterable[ItemT],
        *,
        total: int | None = None,
        label: str = "",
        done: int = 0,
        unit: str = "",
        sizes: Sequence[int] | None = None,
        after: int | None = None,
    ) -> Iterator[ItemT]:
        """Yield `items` unchanged and show progress; the metrics of a `Step` are logged.

        `total`: number of items; `sizes`: units in each item, if it counts as several of `unit`.
        With a unit of `meter`, progress moves while an item is worked on. `done`: number of the
        total that came before; `after`: number in the parts that follow (`Progress.begin`).
        """
        if sizes is not None:
            total = sum(sizes)
        elif total is None and hasattr(items, "__len__"):
            total = len(items)  # pyright: ignore[reportArgumentType]
        self.progress.begin(
            label, unit=unit, total=total, done=done, after=after,
            read_counts=lambda: meter.COUNTS,
        )  # fmt: skip
        for number, item in enumerate(items):
            done += 1 if sizes is None else sizes[number]
            self._report(item, done)
            yield item

    def track_parts(
        self, parts: Mapping[str, Sequence[ItemT]], unit: str
    ) -> Iterator[tuple[str, Iterator[ItemT]]]:
        """Label and items of each part, tracked; the time left that is shown is of all parts."""
        after = sum(map(len, parts.values()))
        for label, items in parts.items():
            after -= len(items)
            yield label, self.track(items, label=label, unit=unit, after=after)

    def _report(self, item: Any, done: int) -> None:
        """Log and show an item; `done`: number of items up to and with it."""
        metrics = getattr(item, "metrics", None)
        watched: dict[str, float] = {}
        if isinstance(metrics, dict) and hasattr(item, "index"):
            self.log(item.index, metrics)
            watched = {WATCHED[name]: float(metrics[name]) for name in WATCHED if name in metrics}
        self.progress.advance(done, watched)

    def parts(
        self, name: str, work: Callable[[int], "Iterator[Step]"], row_type: type[Any]
    ) -> "Iterator[Step]":
        """Steps of work without training, such as sampling: each is on disk before it is yielded.

        `work(n)`: the steps from number n on, a function only of n and the inputs. Their rows are
        dataclasses of `row_type`.
        """
        from stages.loops.work import Step

        def contents(first: int) -> Iterator[dict[str, Any]]:
            for step in work(first):
                rows = [lines.to_dict(row) for row in step.rows]
                yield {"index": step.index, "metrics": step.metrics, "rows": rows}

        for part in self.keep_parts(name, contents):
            rows = [row_type(**row) for row in part["rows"]]
            yield Step(index=part["index"], metrics=part["metrics"], rows=rows)

    def keep_parts(self, name: str, work: Callable[[int], Iterator[Any]]) -> Iterator[Any]:
        """Parts (JSON content) that `work(n)` yields from number n on: `outputs.keep_parts`."""

        def work_from(first: int) -> Iterator[Any]:
            self.progress.restart()
            return work(first)

        return outputs.keep_parts(self.folder / "parts" / name, work_from)

    def once(self, compute: "Callable[[], Sequence[Tensor]]") -> "list[Tensor]":
        """The tensors that `compute` returns, such as a reference's logprobs.

        They may take an hour: a run that resumes reads them and does not compute them again.
        """
        from safetensors.torch import load_file, save_file

        from stages.loops.state import TENSORS

        self.progress.begin("reference", unit="tokens", read_counts=lambda: meter.COUNTS)
        folder = self.folder / LOOP / REFERENCE
        if (checkpoint := self._find_checkpoint(folder)) is not None:
            return [value for _, value in sorted(load_file(checkpoint / TENSORS).items())]
        values = [value.contiguous() for value in compute()]
        tensors = {f"{number:08d}": value for number, value in enumerate(values)}
        if not self.rank:
            checkpoints.write(folder, 0, lambda path: save_file(tensors, path / TENSORS), {})
        return values

    def resume(self, name: str = "") -> "State":
        """The state from which a training loop goes on, and which `record` then checkpoints.

        That is the state of the last whole checkpoint, on all ranks, or a new one. `name`: name of
        the loop, if this run has several.
        """
        from stages.loops.state import State

        checkpoint = self._find_checkpoint(self.folder / LOOP / name / STATES)
        state = State() if checkpoint is None else State.read(checkpoint)
        if checkpoint is not None and not self.rank:
            loop = f", {name}" if name else ""
            logger.info("seed %d%s: resumes after step %d", self.seed, loop, state.step)
        self._loop, self._state = name, state
        return state

    def _find_checkpoint(self, folder: Path) -> Path | None:
        """The last whole checkpoint of rank 0 in a folder, on all ranks."""
        from stages.models import sharding

        return sharding.broadcast_from_rank0(
            None if self.rank else checkpoints.find_last_checkpoint(folder)
        )

    def record(
        self,
        steps: "Iterator[Step]",
        *,
        total: int | None,
        num_checkpoints: int = 0,
        save: Save | None = None,
        after: int | None = None,
    ) -> "list[Metrics]":
        """Run the resumed loop to its end; returns the metrics of all steps.

        `steps` changes the model and the state when it is asked for the next step. Each step is
        logged and its lines are written at once; the state is written now and then. `save` writes
        `num_checkpoints` intermediate policies, evenly spaced over the `total` steps; it writes
        none if `total` is None because a budget of tokens decides. A loop with a name is
        checkpointed at its end, for the loops after it, which take `after` steps.

        A process that is asked to end drops the present step. If that has not begun to change
        weights, the state after the last whole step is written first; else the next start resumes
        from the last checkpoint.
        """
        from stages.loops.resume import LoopRecord
        from stages.loops.training import spaced_steps
        from stages.models import sharding

        state, policies = self._state, spaced_steps(total or 0, num_checkpoints)
        record = LoopRecord(self, state, self.folder / LOOP / self._loop)
        self.progress.begin(
            self._loop, unit="steps", total=total, done=state.step, after=after,
            read_counts=lambda: meter.COUNTS,
        )  # fmt: skip
        try:
            for done, step in enumerate(steps, start=state.step + 1):
                self._report(step, done)
                record.add(step)
                if save is not None and state.step in policies:
                    record.save_policy(save)
                record.end_step()
                process.check_stop()  # what a step calls may have caught the exception
                if sharding.broadcast_from_rank0(record.is_due()):
                    record.checkpoint()
            if self._loop:
                record.checkpoint()
        except process.Stopped:
            process.extend(process.SECONDS_TO_SAVE)
            if record.can_copy():
                record.checkpoint()
            name = f"seed {self.seed}, {self._loop}" if self._loop else f"seed {self.seed}"
            if (step := record.close()) and not self.rank:
                logger.info("%s: saved; the next start resumes after step %d", name, step)
            elif not self.rank:
                logger.info("%s: no step of it is saved: the next start begins it anew", name)
            raise
        finally:
            record.close()
        return record.history

    def write_policy(self, save: Save, *, rollouts: bool = False) -> None:
        """Write the trained policy, its history, its intermediate policies and, if asked, rollouts.

        A run that is killed meanwhile still has them in its scratch folder.
        """
        from stages.loops.resume import HISTORY, POLICIES, ROLLOUTS

        save(self.model_path)
        if self.rank:
            return
        loop = self.folder / LOOP
        for name in (HISTORY, *([ROLLOUTS] if rollouts else [])):
            shutil.copyfile(loop / name, self.output / name)
        if (loop / POLICIES).exists():
            # Hard links suffice: no file is ever written into again.
            copy = outputs.link_or_copy
            shutil.copytree(loop / POLICIES, self.output / POLICIES, copy_function=copy)
