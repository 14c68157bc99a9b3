"""Reinforcement learning: the sizes and the choices that PPO and the group methods share."""

from typing import Annotated, NamedTuple

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.choice import Choice, OneOf
from stages.loops.checkpoints import Kept
from stages.loops.objective import ObjectiveConfig
from stages.optim import OptimConfig

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
"""The treatment of completions that were cut at the length limit."""


class RlConfig(Kept):
    """Sizes and rates, the same for every preset."""

    num_steps: int = Field(gt=0)
    """Rollout batches."""
    prompts_per_step: int = Field(gt=0)
    """Prompts that a rollout batch learns from."""
    temperature: float = Field(gt=0)
    """Of sampling, and of every log-probability."""
    max_new_tokens: int = Field(gt=0)
    """Longest completion."""
    optim: OptimConfig


class RlPreset(ObjectiveConfig):
    """The choices that all methods have."""

    truncation: Truncation
    num_epochs: int = Field(gt=0)
    """Passes over each rollout batch (mu); old log-probs are computed once."""
    num_minibatches: int = Field(gt=0)
    """Optimizer steps in a pass; the first of all is on policy."""
    kl_budget: float | None = Field(gt=0)
    """Training ends when a completion's divergence from the reference exceeds it, in nats."""
    token_budget: int | None = Field(gt=0)
    """Tokens, generated and trained on, in place of `num_steps` (see `Pace`); null: none."""


def check(config: RlConfig, preset: RlPreset) -> None:
    """Refuse more mini-batches than prompts.

    Raises:
        ValueError: saying which number to change.
    """
    if preset.num_minibatches > config.prompts_per_step:
        raise ValueError(
            f"num_minibatches {preset.num_minibatches} is more than prompts_per_step "
            f"{config.prompts_per_step}: some would be empty"
        )
