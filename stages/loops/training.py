"""What every stage that trains a model reads, and what those that train a policy write.

Beside the policy data/policies/<policy>/training/<seed>/: metrics.json, history.jsonl (the metrics
of each step) and, where there are any, rollouts.jsonl and checkpoints/step-<number>/.

Checkpoints show what a run did on its way (accuracy on dev, divergence, what it was paid for), and
which of its policies to keep. The policy after the last step is none of them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from stages.loops.work import Step
from stages.models.device import ComputeConfig
from stages.models.start import LoraConfig, ModelConfig
from stages.params import Params
from stages.records import lines
from stages.runtime.seeds import SeedRun

TIMES = "time/"
"""Prefix of metrics that a second run would not repeat: they stand in the journal alone."""
CHECKPOINT = "step-"
Save = Callable[[Path], None]
"""Writes the policy as it is, as a checkpoint that others read (`policy.save`)."""


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
    total: int | None,
    num_checkpoints: int,
    save: Save,
    logged: Path,
    run: SeedRun,
) -> list[Step]:
    """Every step, tracked; after the `spaced` ones the model is saved before anything else happens.

    `steps` changes the model as it is asked for the next; `total` is None where a budget of tokens
    decides, and then none is saved.
    """
    kept = spaced(total or 0, num_checkpoints)
    folder = logged / "checkpoints"
    folder.mkdir(parents=True)
    history = []
    for step in run.track(steps, total=total):
        if step.index + 1 in kept:
            path = folder / f"{CHECKPOINT}{step.index + 1:04d}"
            save(path)
        history.append(step)
    return history


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
    """The checkpoints that `take` wrote, by the number of their step."""
    found = []
    for path in folder.iterdir():
        number = path.name.removeprefix(CHECKPOINT)
        if not path.name.startswith(CHECKPOINT) or not number.isdecimal():
            raise ValueError(
                f"expected folders named {CHECKPOINT}<number> in {folder}, found '{path.name}'. "
                f"Rerun the stage that trained this policy, which writes them alone."
            )
        found.append((int(number), path))
    return sorted(found)


def write(
    saved: Path,
    logged: Path,
    save: Save,
    history: Sequence[Step],
    rollouts: Iterable[Any] | None = None,
) -> None:
    """One seed's policy (`saved`) and its steps (`logged`), with `rollouts` where there are any."""
    save(saved)
    logged.mkdir(exist_ok=True)
    with (logged / "history.jsonl").open("w", encoding="utf-8") as file:
        for step in history:
            kept = {name: v for name, v in step.metrics.items() if not name.startswith(TIMES)}
            file.write(json.dumps({"index": step.index, "metrics": kept}, sort_keys=True) + "\n")
    if rollouts is not None:
        lines.write(logged / "rollouts.jsonl", rollouts)
