"""The clipped surrogate objective of PPO, used by GRPO as well."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def clipped_surrogate(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],
    advantages: Float[Tensor, "batch token"],
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

    Args:
        logprobs: of the policy being trained; the only input that gets a gradient.
        old_logprobs: of the policy at the start of the update.
        advantages: one for each token.
        clip_low, clip_high: distances from 1 (0.2 in the paper, both).
    """
    advantages = advantages.detach()
    ratio = torch.exp(logprobs - old_logprobs.detach())
    clipped = torch.clamp(ratio, 1 - clip_low, 1 + clip_high)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    active = clipped * advantages < ratio * advantages
    return loss, active
