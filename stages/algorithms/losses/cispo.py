"""CISPO: the importance weight is clipped, the gradient of the token never is."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms.log_ratio import masked_log_ratio
from stages.algorithms.losses.reinforce import weighted_log_likelihood


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
