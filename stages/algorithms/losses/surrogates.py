"""Surrogate losses per token, whose gradient estimates the policy gradient, off policy too.

Arguments, all [batch, token]:

    logprobs      of the policy being trained; the only input that gets a gradient
    old_logprobs  of the policy that drew the tokens, at the start of the update
    advantages    A, one for each token
    mask          True at tokens that count; the others have loss 0

Each returns the loss at each token, to be minimised, and a mask of the tokens where a clip or cap
was active. ratio = exp(logprobs - old_logprobs). Departure from the papers: its logarithm is capped
at 20, above which the ratio has no gradient (that of CISPO never has one). At ratio 1 the gradient
of the loss is the negative policy gradient, - A grad log p.
"""

import torch

from stages.algorithms.aggregation import Mask, Tokens
from stages.algorithms.losses.importance_ratios import masked_log_ratio, sequence_log_ratio


def clipped_surrogate(
    logprobs: Tokens,
    old_logprobs: Tokens,
    advantages: Tokens,
    mask: Mask | None = None,
    *,
    low: float,
    high: float,
) -> tuple[Tokens, Mask]:
    """loss = - min(ratio A, clip(ratio, 1 - low, 1 + high) A); without a mask all tokens count.

    Schulman et al., "Proximal Policy Optimization Algorithms" (2017), eq. 7,
    https://arxiv.org/abs/1707.06347 (low and high 0.2).
    """
    mask = torch.ones_like(logprobs, dtype=torch.bool) if mask is None else mask
    ratio = torch.exp(masked_log_ratio(logprobs, old_logprobs, mask))
    return _clipped(ratio, torch.where(mask, advantages.detach(), 0.0), low, high)


def _clipped(ratio: Tokens, advantages: Tokens, low: float, high: float) -> tuple[Tokens, Mask]:
    clipped = torch.clamp(ratio, 1 - low, 1 + high)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    return loss, clipped * advantages < ratio * advantages


def dual_clip_surrogate(
    logprobs: Tokens,
    old_logprobs: Tokens,
    advantages: Tokens,
    mask: Mask,
    *,
    low: float,
    high: float,
    cap: float,
) -> tuple[Tokens, Mask]:
    """`clipped_surrogate` with a second limit, cap > 1, where A < 0.

        loss = clipped surrogate               where A >= 0
        loss = min(clipped surrogate, - cap A) where A < 0

    With A < 0 PPO's loss is - ratio A for any large ratio, without bound; from ratio = cap on it is
    constant here and the token has no gradient. Ye et al., "Mastering Complex Control in MOBA Games
    with Deep Reinforcement Learning" (2020), section 3.3, https://arxiv.org/abs/1912.09729 (cap 3).
    """
    losses, active = clipped_surrogate(logprobs, old_logprobs, advantages, mask, low=low, high=high)
    advantages = torch.where(mask, advantages.detach(), 0.0)
    ceiling = -cap * advantages
    capped = (advantages < 0) & (losses > ceiling)
    return torch.where(capped, ceiling, losses), active | capped


def sequence_ratio_surrogate(
    logprobs: Tokens,
    old_logprobs: Tokens,
    advantages: Tokens,
    mask: Mask,
    *,
    low: float,
    high: float,
    normalise: bool,
) -> tuple[Tokens, Mask]:
    """Clipped surrogate with one ratio per completion, whose loss each of its tokens has.

        ratio = exp(mean over the completion's tokens of logprobs - old_logprobs)
        loss  = - min(ratio A, clip(ratio, 1 - low, 1 + high) A)

    `aggregation.sequence_mean` is the mean of this loss over completions. For one token it is
    `clipped_surrogate`. Zheng et al., "Group Sequence Policy Optimization" (2025), eq. 5 and 7,
    https://arxiv.org/abs/2507.18071 (clip 3e-4 and 4e-4: a mean moves far less than one token).
    Without `normalise` the ratio is exp of the sum, the ratio of the completion's probabilities, as
    in TRL's RLOO.
    """
    log_ratio = sequence_log_ratio(logprobs, old_logprobs, mask, normalise=normalise)
    ratio = torch.exp(log_ratio).expand_as(logprobs)
    return _clipped(ratio, torch.where(mask, advantages.detach(), 0.0), low, high)


def kl_penalty_surrogate(
    logprobs: Tokens, old_logprobs: Tokens, advantages: Tokens, mask: Mask, *, beta: float
) -> tuple[Tokens, Mask]:
    """loss = - ratio A + beta (ratio - 1 - log ratio) at each token; nothing is ever clipped.

    The bracket is never negative. Over tokens drawn from the old policy its mean is
    KL(old || new), and its mean gradient is that of KL(old || new), since the old policy
    is constant. Schulman et al., "Proximal Policy Optimization Algorithms" (2017),
    section 4, https://arxiv.org/abs/1707.06347; `kl.doubling_coef` adapts beta.
    Departure: the paper sums KL over all actions, here it is estimated from the one taken.
    """
    advantages = torch.where(mask, advantages.detach(), 0.0)
    log_ratio = masked_log_ratio(logprobs, old_logprobs, mask)
    ratio = torch.exp(log_ratio)
    losses = -ratio * advantages + beta * (ratio - 1 - log_ratio)
    return losses, torch.zeros_like(mask)


def reinforce(logprobs: Tokens, advantages: Tokens, mask: Mask) -> tuple[Tokens, Mask]:
    """loss = - A logprobs at each token; nothing is ever clipped.

    Unbiased only for tokens that the policy itself drew: one step for each batch of
    completions. Williams, "Simple Statistical Gradient-Following Algorithms for
    Connectionist Reinforcement Learning" (1992), eq. 4, https://doi.org/10.1007/BF00992696
    """
    coefficients = torch.where(mask, advantages.detach(), 0.0)
    return -_weighted(coefficients, logprobs), torch.zeros_like(mask)


def _weighted(coefficients: Tokens, logprobs: Tokens) -> Tokens:
    """coefficient x logprob; 0 where the coefficient is 0, even at log p = -inf or NaN."""
    return coefficients * torch.where(coefficients == 0, 0.0, logprobs)


def cispo(
    logprobs: Tokens, old_logprobs: Tokens, advantages: Tokens, mask: Mask, *, cap: float
) -> tuple[Tokens, Mask]:
    """loss = - weight A logprobs, weight = min(ratio, cap) without gradient.

    Its gradient is - weight A grad log p. MiniMax, "MiniMax-M1" (2025), eq. 4 and 5,
    https://arxiv.org/abs/2506.13585. Departure: no lower limit; the paper's is so low that it has
    no effect. `cap` is the largest weight, 1 + eps_high in the paper. TRL's `epsilon_high` is the
    largest weight too, so 0.2, meant as a distance from 1, would make every weight at most 0.2.
    """
    with torch.no_grad():
        ratio = torch.exp(masked_log_ratio(logprobs, old_logprobs, mask))
    coefficients = torch.clamp(ratio, max=cap) * torch.where(mask, advantages.detach(), 0.0)
    return -_weighted(coefficients, logprobs), (ratio > cap) & mask
