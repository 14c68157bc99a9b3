"""Advantages relative to the other completions of the same prompt."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def group_zscore(
    rewards: Float[Tensor, "prompt group"], *, ddof: int, eps: float
) -> Float[Tensor, "prompt group"]:
    """(r - mean) / (std + eps) within each group; a group of equal rewards gets exactly 0.

    Shao et al., "DeepSeekMath" (2024), section 4.1.2, https://arxiv.org/abs/2402.03300,
    which leaves the divisor of the variance (n - `ddof`) and eps open: implementations
    differ in both, so both are arguments here.

    Raises:
        ValueError: a group too small for `ddof`.
    """
    size = rewards.shape[1]
    if size <= ddof:
        raise ValueError(
            f"a group of {size} has no standard deviation with ddof {ddof}: "
            f"draw at least {ddof + 1} completions a prompt"
        )
    centred = rewards - rewards.mean(1, keepdim=True)
    std = (centred.square().sum(1, keepdim=True) / (size - ddof)).sqrt()
    # Rounding in the mean must not become a signal in a group without one.
    signal = ~without_signal(rewards)[:, None]
    return torch.where(signal, centred / (std + eps), 0.0)


def without_signal(rewards: Float[Tensor, "prompt group"]) -> Bool[Tensor, " prompt"]:
    """True for groups whose rewards are all equal: their policy gradient is zero."""
    return (rewards == rewards[:, :1]).all(1)
