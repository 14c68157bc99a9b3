"""Kahneman-Tversky optimisation: single completions, each desirable or not."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def kto_reference_point(
    mismatched_logprobs: Float[Tensor, " mismatched"],
    mismatched_ref_logprobs: Float[Tensor, " mismatched"],
) -> Float[Tensor, ""]:
    """z0, an estimate of KL(policy, reference) that gains and losses are measured from.

        z0 = max(0, mean of (log p - log ref)(y_j given x_i)),   y_j an answer to another prompt

    0 when there is no mismatched pair. No gradient. Ethayarajh et al., "KTO: Model Alignment
    as Prospect Theoretic Optimization" (2024), sec. 4, https://arxiv.org/abs/2402.01306
    """
    total = (mismatched_logprobs - mismatched_ref_logprobs).detach().sum()
    return (total / max(len(mismatched_logprobs), 1)).clamp(min=0)


def kto_loss(
    logprobs: Float[Tensor, " batch"],
    ref_logprobs: Float[Tensor, " batch"],
    desirable: Bool[Tensor, " batch"],
    reference_point: Float[Tensor, ""],
    *,
    beta: float,
    desirable_weight: float,
    undesirable_weight: float,
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """Loss and implicit reward of each completion.

        reward = beta (log p - log ref)
        loss   = w_D (1 - sigmoid(reward - beta z0))   where desirable
                 w_U (1 - sigmoid(beta z0 - reward))   where not

    The log-probabilities are sums over a completion's tokens. Ethayarajh et al. (2024), eq. 7
    of the first version, https://arxiv.org/abs/2402.01306. A loss is at most its weight, so
    that a completion far out of reach has hardly any gradient.

    Args:
        logprobs: of the policy; these get the gradient.
        ref_logprobs: of the frozen reference.
        desirable: True where the completion is to become more likely.
        reference_point: z0, of `kto_reference_point`, over the whole optimizer step.
        beta: risk aversion, as DPO's; usually 0.1.
        desirable_weight, undesirable_weight: w_D and w_U; eq. 8 there advises w_D n_D
            between 1 and 4/3 times w_U n_U, n the numbers of rows.
    """
    rewards = beta * (logprobs - ref_logprobs.detach())
    gains = rewards - beta * reference_point.detach()
    losses = torch.where(
        desirable,
        desirable_weight * torch.sigmoid(-gains),
        undesirable_weight * torch.sigmoid(gains),
    )
    return losses, rewards
