"""Log-ratios of two policies at the tokens that count, safe to exponentiate.

A token that the old policy all but excluded can have any log-ratio, also an infinite one.
Departure from every paper whose ratio is built from these: a log-ratio is capped at 20
from above, where its gradient becomes 0. Below it is left alone: exp only goes to 0.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms.kl import MAX_LOG_RATIO


def masked_log_ratio(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
) -> Float[Tensor, "batch token"]:
    """min(logprobs - old_logprobs, 20); 0 where `mask` is False, whatever stands there.

    Args:
        logprobs: the only input that gets a gradient.
        old_logprobs: of the policy in the denominator.
        mask: True at tokens that count.
    """
    # Chosen before the subtraction: a NaN must not reach the backward pass either.
    difference = torch.where(mask, logprobs, 0.0) - torch.where(mask, old_logprobs.detach(), 0.0)
    return torch.clamp(difference, max=MAX_LOG_RATIO)


def sequence_log_ratio(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    normalise: bool,
) -> Float[Tensor, "batch 1"]:
    """Each completion's log-ratio: the sum over its counted tokens, or their mean.

    Capped once for each token and once more after the sum. 0 for a completion without
    counted tokens.

    Args:
        logprobs: the only input that gets a gradient.
        old_logprobs: of the policy in the denominator.
        mask: True at tokens that count.
        normalise: divide by the number of counted tokens.
    """
    total = masked_log_ratio(logprobs, old_logprobs, mask).sum(1, keepdim=True)
    if normalise:
        total = total / mask.sum(1, keepdim=True).clamp(min=1)
    return torch.clamp(total, max=MAX_LOG_RATIO)
