"""Log importance ratios that are safe to exponentiate, and weights that correct for the sampler.

The log-ratio of a token with almost no probability under the old policy can be huge, or infinite.
Departure from every paper whose ratio is computed here: a log-ratio above 20 becomes 20, and has no
gradient. There is no lower cap, since exp then only goes to 0.

From the same weights, an inference engine computes other probabilities than the trainer: it has
other kernels and another precision. So even fresh completions are off-policy, by

    w = exp(old_logprobs - sampler_logprobs)

`old_logprobs` are the trainer's, of the policy at the start of the update; `sampler_logprobs` are
the engine's, of the same tokens, which it drew. The loss of each token is multiplied by one of the
weights below. They have no gradient, and are 0 where `mask` is False. The cap of the log-ratio
matters for them only if `cap` or `high` is above 4.8e8.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from stages.algorithms.aggregation import Mask, Tokens
from stages.algorithms.kl import MAX_LOG_RATIO


def masked_log_ratio(logprobs: Tokens, old_logprobs: Tokens, mask: Mask) -> Tokens:
    """min(logprobs - old_logprobs, 20); 0 where `mask` is False, even at a NaN.

    Only `logprobs` get a gradient.
    """
    # Masked before the subtraction: a NaN must not reach the backward pass either.
    difference = torch.where(mask, logprobs, 0.0) - torch.where(mask, old_logprobs.detach(), 0.0)
    return torch.clamp(difference, max=MAX_LOG_RATIO)


def sequence_log_ratio(
    logprobs: Tokens, old_logprobs: Tokens, mask: Mask, *, normalise: bool
) -> Float[Tensor, "batch 1"]:
    """Log-ratio of each completion: the sum over its counted tokens, or (normalise) their mean.

    Capped once for each token and once more after the sum. 0 for a completion without
    counted tokens.
    """
    total = masked_log_ratio(logprobs, old_logprobs, mask).sum(1, keepdim=True)
    if normalise:
        total = total / mask.sum(1, keepdim=True).clamp(min=1)
    return torch.clamp(total, max=MAX_LOG_RATIO)


def token_truncated(
    old_logprobs: Tokens, sampler_logprobs: Tokens, mask: Mask, *, cap: float
) -> Tokens:
    """min(w, cap) at each token: truncated importance sampling.

    Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"
    (2025), https://fengyao.notion.site/off-policy-rl (cap 2).
    """
    return _truncated(masked_log_ratio(old_logprobs.detach(), sampler_logprobs, mask), mask, cap)


def token_masked(
    old_logprobs: Tokens, sampler_logprobs: Tokens, mask: Mask, *, low: float, high: float
) -> Tokens:
    """w at each token where low <= w <= high, else 0: IcePop.

    Ling Team, "Every Step Evolves: Scaling Reinforcement Learning for Trillion-Scale
    Thinking Model" (2025), https://arxiv.org/abs/2510.18855 (0.5 and 5).
    """
    return _within(masked_log_ratio(old_logprobs.detach(), sampler_logprobs, mask), mask, low, high)


def sequence_truncated(
    old_logprobs: Tokens, sampler_logprobs: Tokens, mask: Mask, *, cap: float
) -> Tokens:
    """min(product of w over the completion, cap), at each of its tokens.

    The only unbiased one of the four, as long as it is not truncated: a completion's probability is
    the product of its tokens' probabilities. J. Liu, Y. Li et al., "When Speed Kills Stability:
    Demystifying RL Collapse from the Training-Inference Mismatch" (2025),
    https://richardli.xyz/rl-collapse
    """
    return _truncated(_log_product(old_logprobs, sampler_logprobs, mask), mask, cap)


def sequence_masked(
    old_logprobs: Tokens, sampler_logprobs: Tokens, mask: Mask, *, low: float, high: float
) -> Tokens:
    """Product of w over the completion if it is within [low, high], else 0.

    A long completion leaves any limits sooner than a short one. Source: that of
    `sequence_truncated`, with `low` 0.
    """
    return _within(_log_product(old_logprobs, sampler_logprobs, mask), mask, low, high)


def _log_product(old_logprobs: Tokens, sampler_logprobs: Tokens, mask: Mask) -> Tokens:
    log_ratio = sequence_log_ratio(old_logprobs.detach(), sampler_logprobs, mask, normalise=False)
    return log_ratio.expand_as(mask)


def _truncated(log_weights: Tokens, mask: Mask, cap: float) -> Tokens:
    return torch.where(mask, torch.clamp(torch.exp(log_weights), max=cap), 0.0)


def _within(log_weights: Tokens, mask: Mask, low: float, high: float) -> Tokens:
    weights = torch.exp(log_weights)
    return torch.where(mask & (weights >= low) & (weights <= high), weights, 0.0)
