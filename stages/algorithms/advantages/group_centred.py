"""The advantage of Dr. GRPO: above the mean of the prompt's completions."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stages.algorithms.advantages.groups import group_means, without_signal


def group_centred(
    rewards: Float[Tensor, " batch"],
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """r - mean within each group; a group of equal rewards gets exactly 0.

    Without the division by the standard deviation, prompts that are nearly always or
    nearly never solved do not weigh more than others. Liu et al., "Understanding
    R1-Zero-Like Training: A Critical Perspective" (2025), section 3,
    https://arxiv.org/abs/2503.20783

    Args:
        rewards: one for each completion.
        groups: the id of each completion's prompt.
        counted: False where a completion enters no mean and has advantage 0.
    """
    rewards = rewards.detach()
    signal = counted & ~without_signal(rewards, groups, counted=counted)
    return torch.where(signal, rewards - group_means(rewards, groups, counted=counted), 0.0)
