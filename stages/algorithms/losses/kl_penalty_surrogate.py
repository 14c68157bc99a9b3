"""PPO's other objective: a penalty on the distance from the old policy, and no clip."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms.log_ratio import masked_log_ratio


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
    section 4, https://arxiv.org/abs/1707.06347; `kl_control.doubling_coef` adapts beta.
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
