"""AdamW with gradient clipping, warm-up and decay: one optimizer step as a function."""

import math
from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from stages.config import Params
from stages.models import sharding


class OptimConfig(Params):
    """AdamW, its learning rate schedule and gradient clipping."""

    learning_rate: float = Field(gt=0)
    """Peak rate of AdamW."""
    warmup_share: float = Field(ge=0, lt=1)
    """Share of the steps over which the rate rises linearly to its peak."""
    schedule: Literal["constant", "linear", "cosine"]
    """Learning rate after the warm-up; linear and cosine fall towards 0."""
    weight_decay: float = Field(ge=0)
    """Decoupled decay of matrices; vectors (norms, biases) are not decayed."""
    max_grad_norm: float = Field(gt=0)
    """Gradients longer than this are scaled down to it."""


def make_adamw(model: nn.Module, config: OptimConfig) -> torch.optim.AdamW:
    """AdamW, with betas 0.9 and 0.95, of the parameters that need a gradient.

    Only parameters of two axes or more decay (`weight_decay`).
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.95), fused=True)


def schedule_learning_rate(config: OptimConfig, step: int, num_steps: int) -> float:
    """Learning rate of optimizer step s = `step`, from 0, of S = `num_steps`.

    With p = `learning_rate`, W = round(`warmup_share` S) and t = (s - W) / (S - W):

        p (s + 1) / W             for s < W, the warm-up
        p                         then, constant
        p (1 - t)                 linear
        p (1 + cos(pi t)) / 2     cosine
    """
    num_warmup = round(config.warmup_share * num_steps)
    if step < num_warmup:
        return config.learning_rate * (step + 1) / num_warmup
    progress = (step - num_warmup) / max(1, num_steps - num_warmup)
    match config.schedule:
        case "constant":
            return config.learning_rate
        case "linear":
            return config.learning_rate * (1 - progress)
        case "cosine":
            return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def step_optimizer(
    optimizer: torch.optim.Optimizer, config: OptimConfig, step: int, num_steps: int
) -> dict[str, float]:
    """Clip the gradients, take step `step` at its rate, clear the gradients.

    Returns the gradient's norm before clipping, and the rate. A gradient that is not finite raises
    a ValueError and leaves the weights as they were.
    """
    rate = schedule_learning_rate(config, step, num_steps)
    parameters: Iterable[nn.Parameter] = [p for g in optimizer.param_groups for p in g["params"]]
    for group in optimizer.param_groups:
        group["lr"] = rate
    clipped = nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
    norm = sharding.full_tensor(clipped).item()
    if not math.isfinite(norm):
        raise ValueError(
            f"step {step}: the gradient's norm is {norm}. Lower the learning rate "
            f"(now {config.learning_rate}), or use float32."
        )
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return {"optim/grad_norm": norm, "optim/learning_rate": rate}
