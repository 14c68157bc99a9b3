"""The advantage of RLOO: above the mean of the prompt's *other* completions."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stages.algorithms.advantages.groups import group_counts, group_sums, without_signal


def leave_one_out(
    rewards: Float[Tensor, " batch"],
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """r_i - (sum of the others) / (n - 1) within each group of n.

    The baseline does not depend on the completion, so the policy gradient stays unbiased;
    it is the centred reward times n / (n - 1). A group of equal rewards, or of one, gets
    exactly 0. Kool et al., "Buy 4 REINFORCE Samples, Get a Baseline for Free!" (2019),
    https://openreview.net/forum?id=r1lgTGL5DE; for language models Ahmadian et al.,
    "Back to Basics" (2024), https://arxiv.org/abs/2402.14740

    Args:
        rewards: one for each completion.
        groups: the id of each completion's prompt.
        counted: False where a completion is nobody's baseline and has advantage 0.
    """
    rewards = torch.where(counted, rewards.detach(), 0.0)
    others = group_counts(groups, counted=counted) - 1
    baselines = (group_sums(rewards, groups) - rewards) / others.clamp(min=1)
    signal = counted & ~without_signal(rewards, groups, counted=counted)
    return torch.where(signal, rewards - baselines, 0.0)
