"""Log-ratios of two policies, safe to exponentiate, and weights that correct for the sampler.

A token that the old policy all but excluded can have any log-ratio, also an infinite one.
Departure from every paper whose ratio is built from these: a log-ratio is capped at 20
from above, where its gradient becomes 0. Below it is left alone: exp only goes to 0.

An inference engine computes other probabilities than the trainer does from the same
weights: other kernels, other precision. So even fresh completions are off-policy, by

    w = exp(old_logprobs - sampler_logprobs)

and a loss at each token is multiplied by one of the weights below. None has a gradient,
and all are 0 at tokens that do not count. The cap of the log-ratio matters for them only where
`cap` or `high` is above 4.8e8.
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


def token_truncated(
    old_logprobs: Float[Tensor, "batch token"],
    sampler_logprobs: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    cap: float,
) -> Float[Tensor, "batch token"]:
    """min(w, cap) at each token: truncated importance sampling.

    Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"
    (2025), https://fengyao.notion.site/off-policy-rl (cap 2).

    Args:
        old_logprobs: of the policy at the start of the update, by the trainer.
        sampler_logprobs: of the same tokens, by the engine that drew them.
        mask: True at tokens that count.
        cap: the largest weight.

    Raises:
        ValueError: `cap` not positive.
    """
    return _truncated(_token_weights(old_logprobs, sampler_logprobs, mask), mask, cap)


def token_masked(
    old_logprobs: Float[Tensor, "batch token"],
    sampler_logprobs: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    low: float,
    high: float,
) -> Float[Tensor, "batch token"]:
    """w at each token where low <= w <= high, else 0: IcePop.

    Ling Team, "Every Step Evolves: Scaling Reinforcement Learning for Trillion-Scale
    Thinking Model" (2025), https://arxiv.org/abs/2510.18855 (0.5 and 5).

    Args:
        old_logprobs: of the policy at the start of the update, by the trainer.
        sampler_logprobs: of the same tokens, by the engine that drew them.
        mask: True at tokens that count.
        low, high: the weights that are trusted, ends included.

    Raises:
        ValueError: limits that leave nothing between them.
    """
    return _within(_token_weights(old_logprobs, sampler_logprobs, mask), mask, low, high)


def sequence_truncated(
    old_logprobs: Float[Tensor, "batch token"],
    sampler_logprobs: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    cap: float,
) -> Float[Tensor, "batch token"]:
    """min(product of w over the completion, cap), at each of its tokens.

    Of the four only this one is unbiased, where it is not truncated: a completion's
    probability is the product of its tokens'. J. Liu, Y. Li et al., "When Speed Kills
    Stability: Demystifying RL Collapse from the Training-Inference Mismatch" (2025),
    https://richardli.xyz/rl-collapse

    Args:
        old_logprobs: of the policy at the start of the update, by the trainer.
        sampler_logprobs: of the same tokens, by the engine that drew them.
        mask: True at tokens that count.
        cap: the largest weight.

    Raises:
        ValueError: `cap` not positive.
    """
    return _truncated(_sequence_weights(old_logprobs, sampler_logprobs, mask), mask, cap)


def sequence_masked(
    old_logprobs: Float[Tensor, "batch token"],
    sampler_logprobs: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    low: float,
    high: float,
) -> Float[Tensor, "batch token"]:
    """The product of w over the completion where it is within low and high, else 0.

    A long completion leaves any limits sooner than a short one. Source as of
    `sequence_truncated`, where `low` is 0.

    Args:
        old_logprobs: of the policy at the start of the update, by the trainer.
        sampler_logprobs: of the same tokens, by the engine that drew them.
        mask: True at tokens that count.
        low, high: the weights that are trusted, ends included.

    Raises:
        ValueError: limits that leave nothing between them.
    """
    return _within(_sequence_weights(old_logprobs, sampler_logprobs, mask), mask, low, high)


def _token_weights(
    old_logprobs: Float[Tensor, "batch token"],
    sampler_logprobs: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
) -> Float[Tensor, "batch token"]:
    return torch.exp(masked_log_ratio(old_logprobs.detach(), sampler_logprobs, mask))


def _sequence_weights(
    old_logprobs: Float[Tensor, "batch token"],
    sampler_logprobs: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
) -> Float[Tensor, "batch token"]:
    log_ratio = sequence_log_ratio(old_logprobs.detach(), sampler_logprobs, mask, normalise=False)
    return torch.exp(log_ratio).expand_as(old_logprobs)


def _truncated(
    weights: Float[Tensor, "batch token"], mask: Bool[Tensor, "batch token"], cap: float
) -> Float[Tensor, "batch token"]:
    if not cap > 0:
        raise ValueError(
            f"expected a cap above 0, found {cap}: it is the largest weight, such as 2"
        )
    return torch.where(mask, torch.clamp(weights, max=cap), 0.0)


def _within(
    weights: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    low: float,
    high: float,
) -> Float[Tensor, "batch token"]:
    if not 0 <= low <= high:
        raise ValueError(
            f"expected 0 <= low <= high, found low {low} and high {high}: they are the "
            "smallest and the largest weight to keep, such as 0.5 and 5"
        )
    return torch.where(mask & (weights >= low) & (weights <= high), weights, 0.0)
