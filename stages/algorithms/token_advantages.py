"""Advantages of single tokens: from returns, a value model, step rewards or a teacher.

Returns to go, generalised advantage estimation (GAE) and VAPO's length-adaptive lambda, GRPO's
process supervision (`step_zscore`), min-form credit assignment (`min_credit`), and on-policy
distillation (`teacher_log_ratio`). A step reward stands at the last token of its reasoning step,
where `step_ends` is True; other entries of `step_rewards` are ignored.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stages.algorithms.aggregation import Mask, Tokens
from stages.algorithms.group_advantages import group_zscore

Lambdas = Float[Tensor, " batch"]


def returns_to_go(rewards: Tokens, mask: Mask, *, gamma: float) -> Tokens:
    """R_t = r_t + gamma R_{t+1}: the discounted sum of this and all later rewards.

    Tokens that do not count (`mask` False) have return 0 and are skipped: they neither add a reward
    nor discount. With a penalty on each token's log-ratio and the score on the last token, whitened
    over the batch (`aggregation.masked_whiten`), these returns are the advantages of Hu,
    "REINFORCE++" (2025), https://arxiv.org/abs/2501.03262
    """
    rewards = torch.where(mask, rewards.detach(), 0.0)
    returns = torch.zeros_like(rewards)
    next_returns = rewards.new_zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        next_returns = torch.where(mask[:, t], rewards[:, t] + gamma * next_returns, next_returns)
        returns[:, t] = next_returns
    return torch.where(mask, returns, 0.0)


def gae(
    rewards: Tokens, values: Tokens, mask: Mask, *, gamma: float, lam: float | Lambdas
) -> tuple[Tokens, Tokens]:
    """GAE: advantages and returns (targets of the value model) of whole episodes; 0 outside `mask`.

        delta_t  = r_t + gamma V_{t+1} - V_t
        A_t      = delta_t + gamma lam A_{t+1}
        return_t = A_t + V_t

    r_t is the reward for token t, and V_t the value of the state before it, without a gradient. A
    completion is an episode, even if it was truncated at the length limit: V after its last token
    is 0. Its tokens come first in a row. `lam` is one number, or one per completion: 1 gives return
    minus value, 0 the one-step residual delta. Schulman et al., "High-Dimensional Continuous
    Control Using Generalized Advantage Estimation" (2016), eq. 11 and 16,
    https://arxiv.org/abs/1506.02438
    """
    values = torch.where(mask, values.detach(), 0.0)
    rewards = torch.where(mask, rewards.detach(), 0.0)
    decay = gamma * (lam.detach() if isinstance(lam, Tensor) else lam)
    advantages = torch.zeros_like(rewards)
    next_advantages = next_values = rewards.new_zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + gamma * next_values - values[:, t]
        next_advantages = torch.where(mask[:, t], delta + decay * next_advantages, 0.0)
        advantages[:, t] = next_advantages
        next_values = values[:, t]
    return advantages, advantages + values


def length_adaptive_lambda(lengths: Int[Tensor, " batch"], *, alpha: float) -> Lambdas:
    """GAE's lam = 1 - 1 / (alpha length), clamped to [0, 1]; length: counted tokens.

    The weights lam^k of GAE then sum to alpha times the length, so that a reward at the end reaches
    the start of long and short completions equally.
    Yue et al., "VAPO" (2025), section 4.2, https://arxiv.org/abs/2504.05118 (alpha 0.05).
    Departure: the clamp; the formula is negative for completions shorter than 1 / alpha.
    """
    # Without tokens 1 / 0 is inf, and the clamp gives 0.
    return torch.clamp(1 - 1 / (alpha * lengths.float()), 0.0, 1.0)


def step_zscore(
    step_rewards: Tokens,
    step_ends: Mask,
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
    ddof: int,
    eps: float,
) -> Tokens:
    """GRPO's process supervision: a token's advantage is the sum of later normalised step rewards.

        z_j = (r_j - mean(R)) / (std(R) + eps),   R: the rewards of all steps of the group
        A_t = sum of z_j over the completion's steps j that end at t or later

    Shao et al., "DeepSeekMath" (2024), section 4.1.3, https://arxiv.org/abs/2402.03300, which
    leaves the divisor of the variance and eps open, as for outcomes. The z-score is `group_zscore`
    over steps, so the n of `ddof` counts the steps of the group. If every completion is one step,
    each of its tokens has the `group_zscore` of the step's reward. A completion of many steps
    weighs more in the mean, and the advantage of its first tokens sums more terms: if all steps of
    two completions are a little above the mean, the one with more steps gains more. A group of
    equal rewards gets exactly 0.
    """
    row_of = step_ends.nonzero()[:, 0]
    rewards, groups, counted = step_rewards.detach()[step_ends], groups[row_of], counted[row_of]
    zscores = group_zscore(rewards, groups, counted=counted, ddof=ddof, eps=eps)
    grid = torch.zeros_like(step_rewards).masked_scatter(step_ends, zscores)
    return returns_to_go(grid, torch.ones_like(step_ends), gamma=1.0)


def min_credit(step_rewards: Tokens, step_ends: Mask) -> tuple[Tokens, Mask]:
    """Min-form credit assignment: only the smallest step reward of a completion is kept.

        r'_j = r_j  where j = the first of argmin_i r_i,   0 elsewhere

    Returns these rewards, and the mask of the end of step j in place of `step_ends`. The return
    from a token on is then min_i r_i up to the end of the worst step, and 0 after it. A further
    step can only lower it, while a sum of step rewards grows with each further step.

    Cheng et al., "Stop Summation: Min-Form Credit Assignment Is All Process Reward Model Needs for
    Reasoning" (PURE, 2025), https://arxiv.org/abs/2504.15275, weigh each reward by softmax(-r / T)
    over the completion's steps, T = 0.1. Departure: this is the limit T -> 0, with a tie going to
    the first step instead of being shared: an error begins where the score falls.
    """
    candidates = torch.where(step_ends, step_rewards.detach(), torch.inf)
    # Not `argmin`, which may return any of equal values.
    smallest = step_ends & (candidates == candidates.amin(1, keepdim=True))
    first = smallest & (smallest.cumsum(1) == 1)
    return torch.where(first, candidates, 0.0), first


def teacher_log_ratio(logprobs: Tokens, teacher_logprobs: Tokens, mask: Mask) -> Tokens:
    """A_t = log teacher(x_t) - log student(x_t) at each sampled token, without a gradient.

    With x_t drawn from the student, the mean of A_t is -KL(student || teacher) of the next token,
    and the expected policy gradient with this advantage is the gradient of -KL. The discount is 0:
    the effect of x_t on the divergences at later tokens is left out. Lu, "On-Policy Distillation"
    (Thinking Machines Lab, 2025). Agarwal et al., "On-Policy Distillation of Language Models" (GKD,
    2024), https://arxiv.org/abs/2306.13649, with reverse KL, sum over the vocabulary in place of
    the sampled token.
    """
    return torch.where(mask, (teacher_logprobs - logprobs).detach(), 0.0)
