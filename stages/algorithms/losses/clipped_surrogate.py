"""The clipped surrogate objective of PPO, used by GRPO as well."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms.log_ratio import masked_log_ratio


def clipped_surrogate(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],
    advantages: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"] | None = None,
    *,
    clip_low: float,
    clip_high: float,
) -> tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """Loss at each token, and where the clip was active.

        ratio = exp(logprobs - old_logprobs)
        loss  = - min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A)

    At ratio 1 its gradient is the policy gradient, - A grad log p.
    Schulman et al., "Proximal Policy Optimization Algorithms" (2017), eq. 7,
    https://arxiv.org/abs/1707.06347
    Departure: the log-ratio is capped at 20, beyond which there is no gradient.

    Args:
        logprobs: of the policy being trained; the only input that gets a gradient.
        old_logprobs: of the policy at the start of the update.
        advantages: one for each token.
        mask: True at tokens that count, by default all; the others have loss 0.
        clip_low, clip_high: distances from 1 (0.2 in the paper, both).
    """
    mask = torch.ones_like(logprobs, dtype=torch.bool) if mask is None else mask
    advantages = torch.where(mask, advantages.detach(), 0.0)
    ratio = torch.exp(masked_log_ratio(logprobs, old_logprobs, mask))
    return clipped_objective(ratio, advantages, clip_low=clip_low, clip_high=clip_high)


def clipped_objective(
    ratio: Float[Tensor, "batch token"],
    advantages: Float[Tensor, "batch token"],
    *,
    clip_low: float,
    clip_high: float,
) -> tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """The loss of `clipped_surrogate` and where it was clipped, from any finite ratio."""
    clipped = torch.clamp(ratio, 1 - clip_low, 1 + clip_high)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    active = clipped * advantages < ratio * advantages
    return loss, active
