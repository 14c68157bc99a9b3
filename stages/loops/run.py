"""Seed run: its row, config, seed, output folders, scratch folder, journal and progress.

The scratch folder belongs to the inputs of the run (`runtime/identity`): other inputs have another
folder. It survives a kill, and is deleted once the outputs are safe. A killed run resumes from it:
from the last checkpoint of a training loop (`loops/resume`), or from the parts of other work, such
as sampling, that are already in `parts/`.

Importing this file imports no torch, which takes a second: stages without a model do not need it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stages import meter, rows
from stages.records import lines
from stages.rows import Row
from stages.runtime import outputs
from stages.runtime.journal import Journal
from stages.runtime.progress import Progress

if TYPE_CHECKING:
    from torch import Tensor

    from stages.loops.state import Metrics, State
    from stages.loops.work import Step

LOOP = "loop"
"""Folder of a run's training loops in its scratch: checkpoints, history, rollouts, policies."""
Save = Callable[[Path], None]
"""Writes the policy with its present weights, for others to read (`policy.save_model`)."""
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
    """A seed run; or, before any seed, the whole stage run with the row's output folders."""

    row: Row
    config: Any
    """The entry point's `Config`."""
    seed: int
    rank: int = 0
    """Which of the processes that train one model this is; ranks after 0 write no output."""
    outputs: Sequence[Path]
    """Output folders of this seed; metrics.json is written into the last one."""
    folder: Path
    """Scratch of this seed and rank alone that survives a kill; never an output."""
    log: Journal
    """Writes the metrics of a step into the journal; of ranks after 0, into scratch."""
    progress: Progress = field(default_factory=Progress)
    """How far this run is."""
    _loop: str = ""
    _state: Any = None

    def __post_init__(self) -> None:
        self.progress.begin(read_counts=lambda: meter.COUNTS)

    @property
    def source(self) -> Path:
        """The input that the row names in `on`: this seed's part where there is one for each."""
        return rows.seed_folder(self.row.source, self.seed)

    @property
    def output(self) -> Path:
        """The folder of metrics.json; of a trained policy that of its training, not the model."""
        return self.outputs[-1]

    @property
    def model_path(self) -> Path:
        """The folder of a trained policy's weights."""
        return self.outputs[0]

    def write(self, name: str, rows: Iterable[Any]) -> None:
        """Write rows, dataclasses, into a file of the output folder, one JSON line each."""
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
    ) -> Iterator[ItemT]:
        """Yield `items` unchanged and show progress; the metrics of a `Step` are logged.

        `total`: number of items; where each counts as several of `unit`, `sizes` has how many. With
        a unit of `meter`, progress moves while an item is worked on. `done`: how many of the total
        came before.
        """
        if sizes is not None:
            total = sum(sizes)
        elif total is None and hasattr(items, "__len__"):
            total = len(items)  # pyright: ignore[reportArgumentType]
        self.progress.begin(
            label, unit=unit, total=total, done=done, read_counts=lambda: meter.COUNTS
        )
        for number, item in enumerate(items):
            done += 1 if sizes is None else sizes[number]
            metrics = getattr(item, "metrics", None)
            watched: dict[str, float] = {}
            if isinstance(metrics, dict) and hasattr(item, "index"):
                self.log(item.index, metrics)  # pyright: ignore[reportAttributeAccessIssue]
                watched = {
                    WATCHED[name]: float(metrics[name]) for name in WATCHED if name in metrics
                }
            self.progress.advance(done, watched)
            yield item

    def parts(
        self, name: str, work: Callable[[int], "Iterator[Step]"], row_type: type[Any]
    ) -> "Iterator[Step]":
        """Steps of work that learns nothing, such as sampling: on disk before they are yielded.

        `work(n)`: the steps from number n on, a function of n and of the inputs alone. Their rows
        are dataclasses of `row_type`.
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
        """Parts of JSON content that `work(n)` yields from part n on: `outputs.keep_parts`."""

        def work_from(first: int) -> Iterator[Any]:
            self.progress.restart()
            return work(first)

        return outputs.keep_parts(self.folder / "parts" / name, work_from)

    def once(self, compute: "Callable[[], Sequence[Tensor]]") -> "list[Tensor]":
        """The tensors that `compute` returned in the first attempt, such as a reference's logprobs.

        They may take an hour, and are not computed again when the run resumes.
        """
        from stages.loops import resume

        self.progress.begin("reference", unit="tokens", read_counts=lambda: meter.COUNTS)
        return resume.compute_once(self, compute)

    def resume(self, name: str = "") -> "State":
        """The state from which a training loop goes on, and which `record` then checkpoints.

        `name`: which of several loops of this run.
        """
        from stages.loops import resume

        self._loop, self._state = name, resume.load_state(self, name)
        return self._state

    def record(
        self,
        steps: "Iterator[Step]",
        *,
        total: int | None,
        num_checkpoints: int = 0,
        save: Save | None = None,
    ) -> "list[Metrics]":
        """Take every step of the loop that was resumed; returns the metrics of all steps.

        Each step is logged and its lines are written as it comes, and the state now and then.
        `save` writes `num_checkpoints` intermediate policies, evenly spaced over the `total` steps;
        there are none where `total` is None because a budget of tokens decides. The end of a loop
        with a name is checkpointed, for the loops after it.

        A process that is asked to end does so between two steps, or within a step that has changed
        nothing yet, once the state is on disk.
        """
        from stages.loops import resume

        return resume.record_steps(
            self, steps, self._state, total=total, name=self._loop,
            num_checkpoints=num_checkpoints, save=save,
        )  # fmt: skip

    def write_policy(self, save: Save, *, rollouts: bool = False) -> None:
        """Write the trained policy, its history, intermediate policies and perhaps rollouts."""
        from stages.loops import resume

        save(self.model_path)
        if not self.rank:
            resume.copy_record(self, self.output, rollouts=rollouts)
