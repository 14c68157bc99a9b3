"""Losses of a policy gradient at each token: what stands for it when the policy has moved.

Of log-probs, those of the old policy, advantages and a mask: the loss, and where it was clipped.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms.losses.importance_ratios import masked_log_ratio, sequence_log_ratio


def clipped_surrogate(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],
    advantages: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"] | None = None,
    *,
    low: float,
    high: float,
) -> tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """Loss at each token, and where the clip was active.

        ratio = exp(logprobs - old_logprobs)
        loss  = - min(ratio A, clip(ratio, 1 - low, 1 + high) A)

    At ratio 1 its gradient is the policy gradient, - A grad log p.
    Schulman et al., "Proximal Policy Optimization Algorithms" (2017), eq. 7,
    https://arxiv.org/abs/1707.06347
    Departure: the log-ratio is capped at 20, beyond which there is no gradient.

    Args:
        logprobs: of the policy being trained; the only input that gets a gradient.
        old_logprobs: of the policy at the start of the update.
        advantages: one for each token.
        mask: True at tokens that count, by default all; the others have loss 0.
        low, high: distances from 1 (0.2 in the paper, both).
    """
    mask = torch.ones_like(logprobs, dtype=torch.bool) if mask is None else mask
    advantages = torch.where(mask, advantages.detach(), 0.0)
    ratio = torch.exp(masked_log_ratio(logprobs, old_logprobs, mask))
    return clipped_objective(ratio, advantages, low=low, high=high)


def clipped_objective(
    ratio: Float[Tensor, "batch token"],
    advantages: Float[Tensor, "batch token"],
    *,
    low: float,
    high: float,
) -> tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """The loss of `clipped_surrogate` and where it was clipped, from any finite ratio."""
    clipped = torch.clamp(ratio, 1 - low, 1 + high)
    loss = -torch.minimum(ratio * advantages, clipped * advantages)
    active = clipped * advantages < ratio * advantages
    return loss, active


def dual_clip_surrogate(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],
    advantages: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    low: float,
    high: float,
    cap: float,
) -> tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """Loss at each token, and where either clip was active.

        loss = clipped surrogate               where A >= 0
        loss = min(clipped surrogate, - cap A) where A < 0

    With A < 0 PPO's loss is - ratio A for any large ratio, without bound; from ratio = cap
    on it is constant here and the token has no gradient. Ye et al., "Mastering Complex
    Control in MOBA Games with Deep Reinforcement Learning" (2020), section 3.3,
    https://arxiv.org/abs/1912.09729 (cap 3).
    Departure: the log-ratio is capped at 20, beyond which there is no gradient.

    Args:
        logprobs: of the policy being trained; the only input that gets a gradient.
        old_logprobs: of the policy at the start of the update.
        advantages: one for each token.
        mask: True at tokens that count; the others have loss 0.
        low, high: distances from 1, of the first clip.
        cap: the ratio from which on a negative advantage has no gradient.

    Raises:
        ValueError: `cap` not above 1.
    """
    if not cap > 1:
        raise ValueError(
            f"expected a cap above 1, found {cap}: it is a ratio, of which 1 means no change; "
            "the paper uses 3"
        )
    losses, active = clipped_surrogate(logprobs, old_logprobs, advantages, mask, low=low, high=high)
    advantages = torch.where(mask, advantages.detach(), 0.0)
    ceiling = -cap * advantages
    capped = (advantages < 0) & (losses > ceiling)
    return torch.where(capped, ceiling, losses), active | capped


def sequence_ratio_surrogate(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],
    advantages: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    low: float,
    high: float,
    normalise: bool,
) -> tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """A completion's loss, repeated at each of its tokens, and where the clip was active.

        ratio = exp(mean over the completion's tokens of logprobs - old_logprobs)
        loss  = - min(ratio A, clip(ratio, 1 - low, 1 + high) A)

    `aggregation.sequence_mean` gives the mean over completions of this loss. With one
    token it is `clipped_surrogate`. Zheng et al., "Group Sequence Policy Optimization"
    (2025), eq. 5 and 7, https://arxiv.org/abs/2507.18071 (clip 3e-4 and 4e-4: a mean
    moves far less than one token). Without `normalise` the sum stands for the mean: the
    true ratio of the completions' probabilities, as in TRL's RLOO.
    Departure: log-ratios are capped at 20, beyond which there is no gradient.

    Args:
        logprobs: of the policy being trained; the only input that gets a gradient.
        old_logprobs: of the policy at the start of the update.
        advantages: the completion's advantage, at each token.
        mask: True at tokens that count; the others have loss 0.
        low, high: distances from 1.
        normalise: divide a completion's log-ratio by the number of its tokens.
    """
    log_ratio = sequence_log_ratio(logprobs, old_logprobs, mask, normalise=normalise)
    losses, active = clipped_objective(
        torch.exp(log_ratio).expand_as(logprobs),
        torch.where(mask, advantages.detach(), 0.0),
        low=low,
        high=high,
    )
    return losses, active


def kl_penalty_surrogate(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],
    advantages: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    beta: float,
) -> tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """Loss at each token; nothing is ever clipped.

        log_ratio = logprobs - old_logprobs
        loss      = - exp(log_ratio) A + beta (exp(log_ratio) - 1 - log_ratio)

    The bracket is never negative. Over tokens drawn from the old policy its mean is
    KL(old || new), and since that distribution does not move, its mean gradient is the
    divergence's too. Schulman et al., "Proximal Policy Optimization Algorithms" (2017),
    section 4, https://arxiv.org/abs/1707.06347; `kl.doubling_coef` adapts beta.
    Departures: the paper sums KL over all actions, here it is estimated from the one
    taken; the log-ratio is capped at 20, beyond which there is no gradient.

    Args:
        logprobs: of the policy being trained; the only input that gets a gradient.
        old_logprobs: of the policy that drew the tokens.
        advantages: one for each token.
        mask: True at tokens that count; the others have loss 0.
        beta: weight of the penalty.
    """
    advantages = torch.where(mask, advantages.detach(), 0.0)
    log_ratio = masked_log_ratio(logprobs, old_logprobs, mask)
    ratio = torch.exp(log_ratio)
    losses = -ratio * advantages + beta * (ratio - 1 - log_ratio)
    return losses, torch.zeros_like(mask)


def reinforce(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],  # noqa: ARG001 - as every surrogate
    advantages: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
) -> tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """loss = - A logprobs at each token; nothing is ever clipped.

    Unbiased only for tokens that the policy itself drew: one step for each batch of
    completions. Williams, "Simple Statistical Gradient-Following Algorithms for
    Connectionist Reinforcement Learning" (1992), eq. 4,
    https://doi.org/10.1007/BF00992696

    Args:
        logprobs: of the policy being trained; the only input that gets a gradient.
        old_logprobs: not used; taken so that every surrogate is called the same way.
        advantages: one for each token.
        mask: True at tokens that count; the others have loss 0.
    """
    coefficients = torch.where(mask, advantages.detach(), 0.0)
    return -weighted_log_likelihood(coefficients, logprobs), torch.zeros_like(mask)


def weighted_log_likelihood(
    coefficients: Float[Tensor, "batch token"], logprobs: Float[Tensor, "batch token"]
) -> Float[Tensor, "batch token"]:
    """coefficient x logprob; 0 where the coefficient is, even at log p = -inf or NaN.

    Args:
        coefficients: without gradient.
        logprobs: with it.
    """
    return coefficients.detach() * torch.where(coefficients == 0, 0.0, logprobs)


def cispo(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],
    advantages: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    cap: float,
) -> tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """Loss at each token, and where the weight was capped.

        weight = min(exp(logprobs - old_logprobs), cap), without gradient
        loss   = - weight A logprobs

    Its gradient is - weight A grad log p, at ratio 1 the policy gradient. MiniMax, "MiniMax-M1"
    (2025), eq. 4 and 5, https://arxiv.org/abs/2506.13585. Departure: no lower limit, which
    the paper writes and then sets so low that it has no effect.

    Args:
        logprobs: of the policy being trained; the only input that gets a gradient.
        old_logprobs: of the policy that drew the tokens.
        advantages: one for each token.
        mask: True at tokens that count; the others have loss 0.
        cap: the largest weight itself, so 1 + eps_high in the paper's terms. TRL's
            `epsilon_high` is this number too: a 0.2 meant as a distance from 1 makes every
            weight 0.2 at most.

    Raises:
        ValueError: `cap` not positive.
    """
    if not cap > 0:
        raise ValueError(
            f"expected a cap above 0, found {cap}: it is the largest weight itself, such as 5"
        )
    with torch.no_grad():
        ratio = torch.exp(masked_log_ratio(logprobs, old_logprobs, mask))
    coefficients = torch.clamp(ratio, max=cap) * torch.where(mask, advantages.detach(), 0.0)
    return -weighted_log_likelihood(coefficients, logprobs), (ratio > cap) & mask
