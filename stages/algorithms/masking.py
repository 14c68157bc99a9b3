"""Sums and means over the entries that count. `mask` is True where an entry counts."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_sum(
    values: Float[Tensor, "batch token"], mask: Bool[Tensor, "batch token"]
) -> Float[Tensor, ""]:
    """Sum over counted entries. An uncounted entry has no effect, not even if NaN."""
    return torch.where(mask, values, 0.0).sum()


def masked_mean(
    values: Float[Tensor, "batch token"], mask: Bool[Tensor, "batch token"]
) -> Float[Tensor, ""]:
    """Mean over counted entries; 0 when none counts."""
    return masked_sum(values, mask) / mask.sum().clamp(min=1)


def masked_whiten(
    values: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    eps: float,
) -> Float[Tensor, "batch token"]:
    """Shift and scale to mean 0 and variance 1 over counted entries; uncounted become 0.

        (x - mean) / sqrt(var + eps),   var with divisor n (not n - 1)

    Schulman et al., "Proximal Policy Optimization Algorithms" (2017) leave this to the
    implementation; the divisor is ours to state.
    """
    # A NaN must not reach the backward pass either.
    values = torch.where(mask, values, 0.0)
    mean = masked_mean(values, mask)
    variance = masked_mean((values - mean) ** 2, mask)
    return torch.where(mask, (values - mean) * torch.rsqrt(variance + eps), 0.0)
