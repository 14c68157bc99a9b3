"""Advantages of single tokens, from rewards to go or from a value model's residuals.

Returns to go, generalised advantage estimation (GAE) and its lambda by length, GRPO's process
supervision (`step_zscore`), step rewards of which only the smallest counts (`min_credit`), and
the teacher of on-policy distillation (`negative_log_ratio`).
Step rewards stand at the last token of each step, `step_ends` is True there, and what else stands
in their grid is ignored.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stages.algorithms.aggregation import Mask, Tokens
from stages.algorithms.group_advantages import group_zscore

Lambdas = Float[Tensor, " batch"]


def returns_to_go(rewards: Tokens, mask: Mask, *, gamma: float) -> Tokens:
    """R_t = r_t + gamma R_{t+1}: the discounted sum of this and all later rewards.

    Tokens that do not count (`mask` False) have return 0 and are no steps: they neither add nor
    discount. With a penalty on each token's log-ratio and the score on the last token, and whitened
    over the batch (`aggregation.masked_whiten`), these are the advantages of Hu, "REINFORCE++"
    (2025), https://arxiv.org/abs/2501.03262
    """
    rewards = torch.where(mask, rewards.detach(), 0.0)
    returns = torch.zeros_like(rewards)
    following = rewards.new_zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        following = torch.where(mask[:, t], rewards[:, t] + gamma * following, following)
        returns[:, t] = following
    return torch.where(mask, returns, 0.0)


def gae(
    rewards: Tokens, values: Tokens, mask: Mask, *, gamma: float, lam: float | Lambdas
) -> tuple[Tokens, Tokens]:
    """Advantages and returns of completions that end in a terminal state; 0 outside `mask`.

        delta_t = r_t + gamma V_{t+1} - V_t
        A_t     = delta_t + gamma lam A_{t+1}
        return_t = A_t + V_t

    r_t is received on emitting token t, V_t is predicted before it and gets no gradient. V after
    the last counted token is 0: a completion is an episode, also when it was cut at the length
    limit, and its tokens come first in a row. lam, one for all completions or one for each: 1 gives
    return minus value, 0 the one-step residual. Schulman et al., "High-Dimensional Continuous
    Control Using Generalized Advantage Estimation" (2016), eq. 11 and 16,
    https://arxiv.org/abs/1506.02438
    """
    values = torch.where(mask, values.detach(), 0.0)
    rewards = torch.where(mask, rewards.detach(), 0.0)
    decay = gamma * (lam.detach() if isinstance(lam, Tensor) else lam)
    advantages = torch.zeros_like(rewards)
    following = next_values = rewards.new_zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + gamma * next_values - values[:, t]
        following = torch.where(mask[:, t], delta + decay * following, 0.0)
        advantages[:, t] = following
        next_values = values[:, t]
    return advantages, advantages + values


def length_adaptive_lambda(lengths: Int[Tensor, " batch"], *, alpha: float) -> Lambdas:
    """lam = 1 - 1 / (alpha length), at least 0 and at most 1; length: counted tokens.

    The weights lam^k of GAE then sum to alpha times the length, so that a reward at the
    end reaches the start of a long completion as well as that of a short one.
    Yue et al., "VAPO" (2025), section 4.2, https://arxiv.org/abs/2504.05118 (alpha 0.05).
    Departure: the clamp; the formula is negative for completions shorter than 1 / alpha.
    """
    # Without tokens: 1 / 0 is inf, and the clamp makes it 0.
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
    """Sum of the normalised rewards of the reasoning steps that end at a token or after it.

        z_j = (r_j - mean(R)) / (std(R) + eps),   R: the rewards of all steps of the group
        A_t = sum of z_j over the completion's steps j that end at t or later

    Shao et al., "DeepSeekMath" (2024), section 4.1.3, https://arxiv.org/abs/2402.03300, which
    leaves the divisor of the variance and eps open, as for outcomes (`group_zscore`, here of steps
    in place of completions: n of `ddof` counts the steps of the group). Where every completion is
    one step, this is `group_zscore` of the steps' rewards at each of its tokens. A completion
    of many steps weighs more in the mean, and its first tokens' advantage is a sum of more
    terms: of completions whose steps are all a little above the mean, the one with more steps
    gains more. A group of equal rewards gets exactly 0.
    """
    row_of = step_ends.nonzero()[:, 0]
    rewards, groups, counted = step_rewards.detach()[step_ends], groups[row_of], counted[row_of]
    zscores = group_zscore(rewards, groups, counted=counted, ddof=ddof, eps=eps)
    grid = torch.zeros_like(step_rewards).masked_scatter(step_ends, zscores)
    return returns_to_go(grid, torch.ones_like(step_ends), gamma=1.0)


def min_credit(step_rewards: Tokens, step_ends: Mask) -> tuple[Tokens, Mask]:
    """Step rewards and step ends with the smallest reward of each completion alone.

        r'_j = r_j  where j = the first of argmin_i r_i,   no reward and no end elsewhere

    The return from a token on is then min_i r_i up to the end of the worst step, and 0 after it.
    Further steps can only lower it, while a sum of all rewards pays for each further step. Also
    returned is the mask of the end of that step.

    Cheng et al., "Stop Summation: Min-Form Credit Assignment Is All Process Reward Model Needs for
    Reasoning" (PURE, 2025), https://arxiv.org/abs/2504.15275, weigh each reward by softmax(-r / T)
    over the completion's steps, T = 0.1. Departure: this is its limit T -> 0, with a tie given to
    the first step instead of being shared: an error begins where the score falls.
    """
    candidates = torch.where(step_ends, step_rewards.detach(), torch.inf)
    # `argmin` gives any of equal ones.
    smallest = step_ends & (candidates == candidates.amin(1, keepdim=True))
    first = smallest & (smallest.cumsum(1) == 1)
    return torch.where(first, candidates, 0.0), first


def negative_log_ratio(logprobs: Tokens, teacher_logprobs: Tokens, mask: Mask) -> Tokens:
    """A_t = log teacher(x_t) - log student(x_t) at each sampled token, without a gradient.

    Given the tokens before x_t, and x_t drawn from the student, the expected policy gradient with
    this advantage is that of -KL(student || teacher) of the next token; its mean is -KL itself.
    A token answers for itself alone (discount 0): that it changes which tokens come next is left
    out. Lu, "On-Policy Distillation" (Thinking Machines Lab, 2025); with the sum over the whole
    vocabulary in place of the sampled token, Agarwal et al., "On-Policy Distillation of Language
    Models" (GKD, 2024), https://arxiv.org/abs/2306.13649, with reverse KL.
    """
    return torch.where(mask, (teacher_logprobs - logprobs).detach(), 0.0)
