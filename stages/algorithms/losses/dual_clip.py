"""PPO's clipped surrogate with a ceiling on what a bad action can cost."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms.losses.clipped_surrogate import clipped_surrogate


def dual_clip_surrogate(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],
    advantages: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    clip_low: float,
    clip_high: float,
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
        clip_low, clip_high: distances from 1, of the first clip.
        cap: the ratio from which on a negative advantage has no gradient.

    Raises:
        ValueError: `cap` not above 1.
    """
    if not cap > 1:
        raise ValueError(
            f"expected a cap above 1, found {cap}: it is a ratio, of which 1 means no change; "
            "the paper uses 3"
        )
    losses, active = clipped_surrogate(
        logprobs, old_logprobs, advantages, mask, clip_low=clip_low, clip_high=clip_high
    )
    advantages = torch.where(mask, advantages.detach(), 0.0)
    ceiling = -cap * advantages
    capped = (advantages < 0) & (losses > ceiling)
    return torch.where(capped, ceiling, losses), active | capped
