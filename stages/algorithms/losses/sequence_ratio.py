"""The clipped surrogate with one ratio for a whole completion."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms.log_ratio import sequence_log_ratio
from stages.algorithms.losses.clipped_surrogate import clipped_objective


def sequence_ratio_surrogate(
    logprobs: Float[Tensor, "batch token"],
    old_logprobs: Float[Tensor, "batch token"],
    advantages: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    clip_low: float,
    clip_high: float,
    normalise: bool,
) -> tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """A completion's loss, repeated at each of its tokens, and where the clip was active.

        ratio = exp(mean over the completion's tokens of logprobs - old_logprobs)
        loss  = - min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A)

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
        clip_low, clip_high: distances from 1.
        normalise: divide a completion's log-ratio by the number of its tokens.
    """
    log_ratio = sequence_log_ratio(logprobs, old_logprobs, mask, normalise=normalise)
    losses, active = clipped_objective(
        torch.exp(log_ratio).expand_as(logprobs),
        torch.where(mask, advantages.detach(), 0.0),
        clip_low=clip_low,
        clip_high=clip_high,
    )
    return losses, active
