"""Advantages of whole completions, each compared with others of its prompt or its batch.

Among them those of GRPO (`group_zscore`), Dr. GRPO (`group_centred`), RLOO (`leave_one_out`) and
ReMax (`greedy_baseline`), and one advantage from several rewards, summed first or normalised first.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stages.algorithms.groups import (
    group_counts,
    group_means,
    group_stds,
    group_sums,
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


def greedy_baseline(
    rewards: Float[Tensor, " batch"],
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
    greedy_rewards: Float[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """r_i - r(greedy completion of the same prompt).

    A group of equal rewards gets 0 only when its greedy completion has that reward too:
    one completion a prompt, the method's usual case, has a signal here. Li et al.,
    "ReMax" (2023), https://arxiv.org/abs/2310.10505

    Args:
        rewards: one for each sampled completion.
        groups: the id of each completion's prompt.
        counted: False where a completion has advantage 0, whatever its rewards.
        greedy_rewards: of the prompt's greedy completion, repeated for each completion.

    Raises:
        ValueError: completions of one prompt with different greedy rewards.
    """
    if not without_signal(greedy_rewards, groups, counted=counted).all():
        raise ValueError(
            "expected one greedy reward a prompt, found different ones in a group: "
            "repeat the reward of the prompt's greedy completion for each of its rows"
        )
    return torch.where(counted, rewards.detach() - greedy_rewards.detach(), 0.0)


def weighted_sum(
    parts: Float[Tensor, "part batch"], weights: Float[Tensor, " part"]
) -> Float[Tensor, " batch"]:
    """sum_k w_k r_k: one reward for each completion, in the parts' own units."""
    return (weights[:, None] * parts).sum(0)


def normalised_sum(
    parts: Float[Tensor, "part batch"],
    weights: Float[Tensor, " part"],
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
    ddof: int,
    eps: float,
) -> Float[Tensor, " batch"]:
    """Each part as standard deviations within its group, summed, then whitened.

        z_k = group z-score of r_k
        s   = sum_k w_k z_k
        A   = (s - mean of s over the batch) / (std of s over the batch + eps)

    So a part weighs what its weight says, whatever its units. A completion whose group has
    no signal in any part gets exactly 0. Liu, S.-Y. et al., "GDPO: Group reward-Decoupled
    Normalization Policy Optimization" (2026), https://arxiv.org/abs/2601.05242; TRL's
    `normalize_then_sum` (ddof 1, eps 1e-4 in both places).

    Args:
        parts: one row of rewards for each part.
        weights: w, one for each part.
        groups: the id of each completion's prompt.
        counted: False where a completion enters no statistic and has advantage 0.
        ddof: of both standard deviations: 0 divides by n, 1 by n - 1.
        eps: added to both.
    """
    parts = parts.detach()
    zscores = [group_zscore(part, groups, counted=counted, ddof=ddof, eps=eps) for part in parts]
    silent = [without_signal(part, groups, counted=counted) for part in parts]
    # The whole batch is one group.
    whitened = group_zscore(
        weighted_sum(torch.stack(zscores), weights.detach()),
        torch.zeros_like(groups),
        counted=counted,
        ddof=ddof,
        eps=eps,
    )
    return torch.where(torch.stack(silent).all(0), 0.0, whitened)
