"""What every stage that trains a policy writes, for each seed.

data/policies/<policy>/model/<seed>/       the policy, as transformers saves it
data/policies/<policy>/training/<seed>/    metrics.json, history.jsonl (a row a step: its
                                           metrics), and where there are any rollouts.jsonl and
                                           checkpoints/
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.loops import checkpoints
from stages.loops.step import Step
from stages.models import policy
from stages.models.start import Merge
from stages.records import lines
from stages.rows import DATA
from stages.runtime import outputs
from stages.runtime.seeds import SeedRun

TIMES = "time/"
"""Prefix of metrics that a second run would not repeat: they stand in the journal alone."""


class Folders(NamedTuple):
    """Where a stage's two outputs are written before they take their place."""

    model: Path
    training: Path


@contextmanager
def outputs_of(name: str) -> Iterator[Folders]:
    """Temporary folders of policy `name`; both take their place when the block ends, or neither."""
    folder = DATA / "policies" / name
    with (
        outputs.replace(folder / "model") as model,
        outputs.replace(folder / "training") as trained,
    ):
        model.mkdir()
        trained.mkdir()
        yield Folders(model, trained)


def per_seed(folder: Path, seed: int) -> Path:
    """The seed's own part of an input, where it has one for each; else the folder itself."""
    own = folder / str(seed)
    return own if own.is_dir() else folder


def take(
    steps: Iterator[Step],
    total: int | None,
    num_checkpoints: int,
    merged: Merge,
    tokenizer: PreTrainedTokenizerBase,
    folders: Folders,
    run: SeedRun,
) -> list[Step]:
    """Every step of a training loop, tracked, with checkpoints along the way (`checkpoints`)."""
    path = folders.training / str(run.seed) / "checkpoints"
    kept = checkpoints.along(steps, total, num_checkpoints, merged, tokenizer, path)
    return list(run.track(kept, total=total))


def write(
    folders: Folders,
    seed: int,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    history: Sequence[Step],
    metrics: dict[str, Any],
    rollouts: Iterable[Any] | None = None,
) -> None:
    """The outputs of one seed; `rollouts` are the rows that a reinforcement-learning run made."""
    policy.save(model, tokenizer, folders.model / str(seed))
    folder = folders.training / str(seed)
    folder.mkdir(exist_ok=True)
    with (folder / "history.jsonl").open("w", encoding="utf-8") as file:
        for step in history:
            kept = {name: v for name, v in step.metrics.items() if not name.startswith(TIMES)}
            file.write(json.dumps({"index": step.index, "metrics": kept}, sort_keys=True) + "\n")
    if rollouts is not None:
        lines.write(folder / "rollouts.jsonl", rollouts)
    outputs.write_json(folder / "metrics.json", metrics)
