"""Advantages of whole completions, from rewards compared within a group or over the batch.

GRPO (`group_zscore`), Dr. GRPO (`group_centred`), MaxRL (`mean_normalised`), RLOO
(`leave_one_out`), ReMax (`greedy_baseline`), and GDPO, which combines several reward components
(`normalised_sum`).

A row is a completion. `groups` holds the id of its prompt: rows with the same id are a group.
Groups may differ in size, and their rows may be in any order. A statistic of a group is returned
for each of its rows. Rows that are not `counted` enter no statistic and have advantage 0. The
variance of n numbers has the divisor n - `ddof`; `eps` is added to the standard deviation.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Rewards = Float[Tensor, " batch"]
Groups = Int[Tensor, " batch"]
Counted = Bool[Tensor, " batch"]
Components = Float[Tensor, "component batch"]
Weights = Float[Tensor, " component"]


def group_sums(values: Rewards, groups: Groups) -> Rewards:
    """Sum over each row's group."""
    index = _index(groups)
    return values.new_zeros(len(values)).index_add(0, index, values)[index]


def group_counts(groups: Groups, *, counted: Counted) -> Int[Tensor, " batch"]:
    """Number of counted rows in each row's group."""
    index = _index(groups)
    return torch.zeros_like(index).index_add(0, index, counted.to(index.dtype))[index]


def group_means(values: Rewards, groups: Groups, *, counted: Counted) -> Rewards:
    """Mean over the counted rows of each row's group; 0 when none counts."""
    sums = group_sums(torch.where(counted, values, 0.0), groups)
    return sums / group_counts(groups, counted=counted).clamp(min=1)


def group_stds(values: Rewards, groups: Groups, *, counted: Counted, ddof: int) -> Rewards:
    """sqrt(sum (x - mean)^2 / (n - ddof)) over a group's counted rows, 0 when n <= ddof."""
    centred = values - group_means(values, groups, counted=counted)
    squares = group_sums(torch.where(counted, centred.square(), 0.0), groups)
    divisors = group_counts(groups, counted=counted) - ddof
    return torch.where(divisors > 0, squares / divisors.clamp(min=1), 0.0).sqrt()


def has_equal_rewards(
    rewards: Rewards, groups: Groups, *, counted: Counted
) -> Bool[Tensor, " batch"]:
    """True in groups whose counted rewards are all equal, also if one row or none counts.

    Such a group has no gradient under a group baseline. Rewards are compared exactly: the rounded
    mean of equal numbers may differ from them, and scaled rounding errors would look like
    advantages.
    """
    index = _index(groups)
    infinity = torch.full_like(rewards, torch.inf)
    lowest = infinity.scatter_reduce(0, index, torch.where(counted, rewards, torch.inf), "amin")
    highest = (-infinity).scatter_reduce(
        0, index, torch.where(counted, rewards, -torch.inf), "amax"
    )
    # A group without counted rows has lowest inf and highest -inf.
    return (lowest >= highest)[index]


def _index(groups: Groups) -> Int[Tensor, " batch"]:
    """Ids renumbered 0, 1, 2, ...: an id may be larger than any tensor."""
    # torch's `unique` is not annotated.
    return torch.unique(groups, return_inverse=True)[1]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def group_zscore(
    rewards: Rewards, groups: Groups, *, counted: Counted, ddof: int, eps: float
) -> Rewards:
    """A = (r - mean) / (std + eps) within each group: GRPO with outcome supervision.

    A group of equal rewards gets exactly 0, and so does one of at most `ddof` counted completions.
    Shao et al., "DeepSeekMath" (2024), section 4.1.2, https://arxiv.org/abs/2402.03300, who do not
    state eps and the divisor of the variance. TRL: ddof 1, eps 1e-4; verl: ddof 1, eps 1e-6.
    Departure from verl: there a group of one has mean 0 and standard deviation 1, so its advantage
    is its reward; here it is 0, for lack of a baseline.
    """
    rewards = rewards.detach()
    centred = rewards - group_means(rewards, groups, counted=counted)
    stds = group_stds(rewards, groups, counted=counted, ddof=ddof)
    signal = counted & ~has_equal_rewards(rewards, groups, counted=counted)
    signal &= group_counts(groups, counted=counted) > ddof
    return torch.where(signal, centred / (stds + eps), 0.0)


def group_centred(rewards: Rewards, groups: Groups, *, counted: Counted) -> Rewards:
    """A = r - mean within each group (Dr. GRPO); a group of equal rewards gets exactly 0.

    Division by the standard deviation would give more weight to prompts that are nearly always or
    nearly never solved. Liu et al., "Understanding R1-Zero-Like Training: A Critical Perspective"
    (2025), section 3, https://arxiv.org/abs/2503.20783
    """
    rewards = rewards.detach()
    signal = counted & ~has_equal_rewards(rewards, groups, counted=counted)
    return torch.where(signal, rewards - group_means(rewards, groups, counted=counted), 0.0)


def mean_normalised(rewards: Rewards, groups: Groups, *, counted: Counted, eps: float) -> Rewards:
    """A = (r - mean) / (mean + eps) within each group (MaxRL); equal rewards get exactly 0.

    With rewards of 0 and 1, of which K are 1, and advantages averaged over the group of n, a right
    completion weighs 1 / K - 1 / n and a wrong one -1 / n. The expected policy gradient is that of
    -sum_{k=1}^{n-1} (1 - p)^k / k, which tends to log p, the log of the success probability: a
    prompt that is seldom solved weighs more. Tajwar et al., "Maximum Likelihood Reinforcement
    Learning" (2026), https://arxiv.org/abs/2602.02710. Departure: any rewards of at least 0. A
    ValueError for a negative reward, with which the mean is not a success probability.
    """
    rewards = rewards.detach()
    if (counted & (rewards < 0)).any():
        raise ValueError(
            f"advantage mean_normalised divides by the mean reward of a group: expected rewards of "
            f"at least 0, found {rewards[counted].min().item():g}: take a reward without "
            f"penalties, and kl loss or none"
        )
    means = group_means(rewards, groups, counted=counted)
    signal = counted & ~has_equal_rewards(rewards, groups, counted=counted)
    return torch.where(signal, (rewards - means) / (means + eps), 0.0)


def batch_std(
    rewards: Rewards, groups: Groups, *, counted: Counted, ddof: int, eps: float
) -> Rewards:
    """A = (r - group mean) / (standard deviation of the batch's rewards + eps).

    A group of equal rewards gets exactly 0, and so does a batch of at most `ddof` counted
    completions. TRL's `scale_rewards="batch"` (ddof 1, eps 1e-4), after Liu, Z. et al.,
    "Part I: Tricks or Traps?" (2025), https://arxiv.org/abs/2508.08221. The baseline
    variant of Hu, "REINFORCE++" (2025), https://arxiv.org/abs/2501.03262, divides by the
    standard deviation of the *centred* rewards instead, which is smaller.
    """
    centred = group_centred(rewards, groups, counted=counted)
    stds = group_stds(rewards.detach(), torch.zeros_like(groups), counted=counted, ddof=ddof)
    signal = (centred != 0) & (counted.sum() > ddof)
    return torch.where(signal, centred / (stds + eps), 0.0)


def leave_one_out(rewards: Rewards, groups: Groups, *, counted: Counted) -> Rewards:
    """A_i = r_i - (sum of the other rewards) / (n - 1) within each group of n: RLOO.

    The baseline does not depend on the completion, so the policy gradient stays unbiased;
    it is the centred reward times n / (n - 1). A group of equal rewards, or of one, gets
    exactly 0. Kool et al., "Buy 4 REINFORCE Samples, Get a Baseline for Free!" (2019),
    https://openreview.net/forum?id=r1lgTGL5DE; for language models Ahmadian et al.,
    "Back to Basics" (2024), https://arxiv.org/abs/2402.14740
    """
    rewards = torch.where(counted, rewards.detach(), 0.0)
    num_others = group_counts(groups, counted=counted) - 1
    baselines = (group_sums(rewards, groups) - rewards) / num_others.clamp(min=1)
    signal = counted & ~has_equal_rewards(rewards, groups, counted=counted)
    return torch.where(signal, rewards - baselines, 0.0)


def greedy_baseline(rewards: Rewards, *, counted: Counted, greedy_rewards: Rewards) -> Rewards:
    """A_i = r_i - r(greedy completion of the same prompt): ReMax.

    `greedy_rewards` repeats the greedy completion's reward for each row of its group. A group of
    equal rewards gets 0 only if its greedy completion has that reward too. So a single sample per
    prompt, the method's usual case, can have an advantage. Li et al., "ReMax" (2023),
    https://arxiv.org/abs/2310.10505
    """
    return torch.where(counted, rewards.detach() - greedy_rewards.detach(), 0.0)


def weighted_sum(components: Components, weights: Weights) -> Rewards:
    """r = sum_k w_k r_k: one reward per completion, of components that are not normalised."""
    return (weights[:, None] * components).sum(0)


def normalised_sum(
    components: Components,
    weights: Weights,
    groups: Groups,
    *,
    counted: Counted,
    ddof: int,
    eps: float,
) -> Rewards:
    """Weighted sum of the components' group z-scores, then whitened over the batch: GDPO.

        z_k = group z-score of r_k
        s   = sum_k w_k z_k
        A   = (s - mean of s over the batch) / (std of s over the batch + eps)

    So the scale of a component does not change its influence. A completion whose group has equal
    rewards in every component gets exactly 0. Liu, S.-Y. et al., "GDPO: Group reward-Decoupled
    Normalization Policy Optimization" (2026), https://arxiv.org/abs/2601.05242; TRL's
    `normalize_then_sum` (ddof 1, eps 1e-4 in both places).
    """
    components = components.detach()
    zscores = [
        group_zscore(rewards, groups, counted=counted, ddof=ddof, eps=eps) for rewards in components
    ]
    are_equal = [has_equal_rewards(rewards, groups, counted=counted) for rewards in components]
    summed = weighted_sum(torch.stack(zscores), weights.detach())
    whole_batch = torch.zeros_like(groups)
    whitened = group_zscore(summed, whole_batch, counted=counted, ddof=ddof, eps=eps)
    return torch.where(torch.stack(are_equal).all(0), 0.0, whitened)
