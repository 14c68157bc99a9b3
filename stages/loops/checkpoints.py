"""Checkpoints along a training run: which steps have one, and how they are written.

They show what a run did on its way (accuracy on dev, divergence, what it was paid for), and
which of its policies to keep. The policy after the last step is the run's own output, so it is
none of them.
"""

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.loops.step import Step
from stages.models import policy
from stages.models.start import Merge
from stages.params import Params

PREFIX = "step-"


class Kept(Params):
    """How many policies of a run are kept besides the last."""

    num_checkpoints: int = Field(ge=0)
    """Policies kept along the way, evenly spaced, each as large as the policy; 0: none."""


def spaced(num_steps: int, num_checkpoints: int) -> list[int]:
    """After which steps, counted from 1, a checkpoint is written: evenly spaced, without the last.

        round(i * num_steps / (num_checkpoints + 1)),   i = 1 .. num_checkpoints

    Of a run shorter than that, every step but the last. 32 steps and 3 checkpoints: 8, 16, 24.

    Args:
        num_steps: of the whole run.
        num_checkpoints: 0 for none.
    """
    # Whole numbers: half a step is rounded up, never to the nearest even one.
    parts = 2 * (num_checkpoints + 1)
    found = {(2 * i * num_steps + parts // 2) // parts for i in range(1, num_checkpoints + 1)}
    return sorted(step for step in found if 0 < step < num_steps)


def along(
    steps: Iterator[Step],
    num_steps: int | None,
    num_checkpoints: int,
    merged: Merge,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
) -> Iterator[Step]:
    """The same steps; after the `spaced` ones the model is saved before anything else happens.

    Args:
        steps: of a training loop, which changes the model as it is asked for the next.
        num_steps: how many there will be; None where a budget of tokens decides, then none is
            saved.
        num_checkpoints: how many are saved.
        merged: gives the model to be saved, and leaves the one that is trained as it is.
        tokenizer: saved with each.
        folder: gets a folder `step-<number>` for each; made here, empty where there is none.
    """
    kept = spaced(num_steps or 0, num_checkpoints)
    folder.mkdir(parents=True)
    for step in steps:
        if step.index + 1 in kept:
            path = folder / f"{PREFIX}{step.index + 1:04d}"
            policy.save(merged(going_on=True), tokenizer, path)
        yield step


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints that `along` wrote, by the number of their step.

    Raises:
        ValueError: something else lies there.
    """
    found = []
    for path in sorted(folder.iterdir()):
        number = path.name.removeprefix(PREFIX)
        if not path.name.startswith(PREFIX) or not number.isdecimal():
            raise ValueError(
                f"expected folders named {PREFIX}<number> in {folder}, found '{path.name}'. Rerun "
                f"the stage that trained this policy, which writes them, and nothing else there."
            )
        found.append((int(number), path))
    return sorted(found)
