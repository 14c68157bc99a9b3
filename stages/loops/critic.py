"""PPO's value model: where it starts, and its part of an optimizer step."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from stages.algorithms.aggregation import token_mean
from stages.algorithms.losses.reward_and_value_losses import clipped_value_loss
from stages.loops.objective import Part
from stages.loops.rollouts import Actor
from stages.loops.state import State
from stages.models import scalar_head
from stages.models import start as models_start
from stages.models.scalar_head import ScalarHead
from stages.models.sharding import shard
from stages.models.start import LoraConfig
from stages.optim import OptimConfig, update
from stages.params import Params
from stages.seeding import derive


class ValueConfig(Params):
    """The value model."""

    init: Literal["reward_model", "policy"]
    """Whose weights it starts from; `policy`: those of the start, under a head of zeros."""
    clip: float | None = Field(gt=0)
    """How far a value may move in one rollout batch before its gradient stops; null: any."""
    coef: float = Field(gt=0)
    """Weight of its loss; only gradient clipping sees it."""
    warmup_steps: int = Field(ge=0)
    """Rollout batches in which only the value model learns."""


def load(
    config: ValueConfig,
    actor: Actor,
    start: Callable[[], Path],
    reward: Path,
    adapters: LoraConfig,
    seed: int,
) -> nn.Module:
    """The value model that `config` asks for, on the policy's device.

    It may start from the folder that the policy was loaded from, which `start` finds, or from that
    of the reward model or ensemble.
    """
    compute, device = actor.compute, actor.policy.device
    if config.init == "policy":
        value = scalar_head.from_policy(start(), actor.pad_id, compute, device)
    else:
        # Of an ensemble, its first member: a mean of weights is no mean of functions.
        value = scalar_head.load(scalar_head.folders(reward)[0], compute, device)
    models_start.attach(value, adapters, derive(seed, "value"))
    return shard(ScalarHead(value), compute.dtype)


class Critic:
    """A value model and its optimizer."""

    def __init__(
        self, model: nn.Module, config: ValueConfig, optim: OptimConfig, state: State
    ) -> None:
        """Ready to learn; `model` is changed in place."""
        self.model, self.config, self._optim = model.train(), config, optim
        self._optimizer = state.optimizer("value", model, optim)

    def add_gradient(self, parts: Sequence[Part], num_tokens: int) -> float:
        """Add the gradient of coef times the mean value loss; returns the mean."""
        total, clip = 0.0, torch.inf if self.config.clip is None else self.config.clip
        for part in parts:
            assert part.old_values is not None and part.returns is not None  # noqa: PT018
            values = self.model(part.batch, each_token=True)
            losses = clipped_value_loss(values, part.old_values, part.returns, clip=clip)
            loss = token_mean(losses, part.batch.mask, num_tokens=num_tokens)
            (self.config.coef * loss).backward()
            total += loss.item()
        return total

    def update(self, step: int, num_steps: int) -> float:
        """Take an optimizer step; returns the gradient's norm."""
        return update(self._optimizer, self._optim, step, num_steps)["optim/grad_norm"]
