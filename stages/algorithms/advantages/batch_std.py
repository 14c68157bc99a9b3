"""Advantages centred within the group and scaled by the whole batch."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stages.algorithms.advantages.group_centred import group_centred
from stages.algorithms.advantages.groups import group_stds


def batch_std(
    rewards: Float[Tensor, " batch"],
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
    ddof: int,
    eps: float,
) -> Float[Tensor, " batch"]:
    """(r - group mean) / (standard deviation of the batch's rewards + eps).

    A group of equal rewards gets exactly 0, and so does a batch of at most `ddof` counted
    completions. TRL's `scale_rewards="batch"` (ddof 1, eps 1e-4), after Liu, Z. et al.,
    "Part I: Tricks or Traps?" (2025), https://arxiv.org/abs/2508.08221. The baseline
    variant of Hu, "REINFORCE++" (2025), https://arxiv.org/abs/2501.03262, divides by the
    standard deviation of the *centred* rewards instead, which is smaller.

    Args:
        rewards: one for each completion.
        groups: the id of each completion's prompt.
        counted: False where a completion enters no statistic and has advantage 0.
        ddof: 0 divides the variance by n, 1 by n - 1.
        eps: added to the standard deviation.
    """
    centred = group_centred(rewards, groups, counted=counted)
    whole = torch.zeros_like(groups)
    stds = group_stds(rewards.detach(), whole, counted=counted, ddof=ddof)
    signal = (centred != 0) & (counted.sum() > ddof)
    return torch.where(signal, centred / (stds + eps), 0.0)
