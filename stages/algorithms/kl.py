"""Estimators of the divergence KL(policy || reference) from sampled tokens.

With x drawn from the policy and log_ratio = log policy(x) - log reference(x).
Schulman, "Approximating KL Divergence" (2020), http://joschu.net/blog/kl-approx.html
"""

import torch
from jaxtyping import Float
from torch import Tensor

# exp(20) is 5e8: beyond it a single token's estimate would drown a step, or overflow.
MAX_LOG_RATIO = 20.0


def k1(
    logprobs: Float[Tensor, "batch token"], ref_logprobs: Float[Tensor, "batch token"]
) -> Float[Tensor, "batch token"]:
    """log_ratio: unbiased, can be negative, high variance."""
    return logprobs - ref_logprobs


def k2(
    logprobs: Float[Tensor, "batch token"], ref_logprobs: Float[Tensor, "batch token"]
) -> Float[Tensor, "batch token"]:
    """log_ratio^2 / 2: biased; its gradient is that of the reverse KL, on policy."""
    return 0.5 * (logprobs - ref_logprobs) ** 2


def k3(
    logprobs: Float[Tensor, "batch token"], ref_logprobs: Float[Tensor, "batch token"]
) -> Float[Tensor, "batch token"]:
    """exp(-log_ratio) - 1 + log_ratio: unbiased, never negative.

    As a loss (Shao et al., "DeepSeekMath" (2024), eq. 4) its gradient is not that of
    KL(policy || reference) but, on policy, of KL(reference || policy).
    Departure: -log_ratio is capped at 20 so that one token cannot overflow.
    """
    negative = torch.clamp(ref_logprobs - logprobs, max=MAX_LOG_RATIO)
    return torch.exp(negative) - 1 - negative
