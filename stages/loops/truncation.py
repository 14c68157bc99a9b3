"""The treatment of completions that were cut at the length limit."""

from typing import Annotated, NamedTuple

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.choice import Choice, OneOf

Flags = Bool[Tensor, " batch"]


class Treatment(NamedTuple):
    """Of all completions of a step, cut or not."""

    penalties: Float[Tensor, " batch"]
    """Subtracted from their rewards."""
    in_baseline: Flags
    """Which completions the baseline is made of."""
    in_loss: Flags
    """Which completions are learned from."""


def penalise(truncated: Flags, *, penalty: float) -> Treatment:
    """Learned from like any other, its reward lowered; at penalty 0 it is judged by its text."""
    every = torch.ones_like(truncated)
    return Treatment(penalty * truncated, every, every)


def mask(truncated: Flags) -> Treatment:
    """Not learned from; its reward still counts in its group's baseline."""
    return Treatment(torch.zeros(truncated.shape), torch.ones_like(truncated), ~truncated)


def exclude(truncated: Flags) -> Treatment:
    """Not learned from, and the baseline is that of the others."""
    return Treatment(torch.zeros(truncated.shape), ~truncated, ~truncated)


Truncation = Annotated[
    Choice,
    OneOf(
        {"penalise": penalise, "mask": mask, "exclude": exclude},
        given=("truncated",),
        bounds={"penalty": Field(ge=0)},
    ),
]
