"""The advantage of GRPO: standard deviations above the other completions of the prompt."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stages.algorithms.advantages.groups import (
    group_counts,
    group_means,
    group_stds,
    without_signal,
)


def group_zscore(
    rewards: Float[Tensor, " batch"],
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
    ddof: int,
    eps: float,
) -> Float[Tensor, " batch"]:
    """(r - mean) / (std + eps) within each group; a group of equal rewards gets exactly 0.

    Shao et al., "DeepSeekMath" (2024), section 4.1.2, https://arxiv.org/abs/2402.03300,
    which leaves the divisor of the variance and eps open. TRL: ddof 1, eps 1e-4; verl:
    ddof 1, eps 1e-6. Departure from verl: there a group of one has mean 0 and standard
    deviation 1, so its advantage is its reward; here it is 0, for lack of a baseline.

    Args:
        rewards: one for each completion.
        groups: the id of each completion's prompt.
        counted: False where a completion enters no statistic and has advantage 0.
        ddof: 0 divides the variance by n, 1 by n - 1; groups with at most `ddof` counted
            completions get 0.
        eps: added to the standard deviation.
    """
    rewards = rewards.detach()
    centred = rewards - group_means(rewards, groups, counted=counted)
    stds = group_stds(rewards, groups, counted=counted, ddof=ddof)
    signal = counted & ~without_signal(rewards, groups, counted=counted)
    signal &= group_counts(groups, counted=counted) > ddof
    return torch.where(signal, centred / (stds + eps), 0.0)
