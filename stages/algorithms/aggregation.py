"""Loss of an optimizer step as a mean over its tokens or completions, in micro-batches.

Each function returns a micro-batch's share of that mean: its *sum*, divided by a count over all
micro-batches of the step, taken before the first backward pass. So any split into micro-batches
gives the same gradient; with means over micro-batches it would not.

Sums and means are over the entries that count: those where `mask` is True.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Tokens = Float[Tensor, "batch token"]
Mask = Bool[Tensor, "batch token"]
Number = Float[Tensor, ""]


def masked_sum(values: Tokens, mask: Mask) -> Number:
    """Sum over counted entries. An uncounted entry has no effect, not even if NaN."""
    return torch.where(mask, values, 0.0).sum()


def masked_mean(values: Tokens, mask: Mask) -> Number:
    """Mean over counted entries; 0 if there are none."""
    return masked_sum(values, mask) / mask.sum().clamp(min=1)


def masked_whiten(values: Tokens, mask: Mask, *, eps: float) -> Tokens:
    """Shift and scale to mean 0 and variance 1 over counted entries; uncounted become 0.

        (x - mean) / sqrt(var + eps),   var with divisor n (not n - 1)

    Most implementations of PPO whiten advantages like this; Schulman et al. (2017) do not mention
    it, and the divisor is our choice. Equal values become exactly 0: their rounded mean may differ
    from them, and scaled rounding errors would look like advantages.
    """
    # A NaN must not reach the backward pass either.
    values = torch.where(mask, values, 0.0)
    mean = masked_mean(values, mask)
    variance = masked_mean((values - mean) ** 2, mask)
    lowest = torch.where(mask, values, torch.inf).amin()
    highest = torch.where(mask, values, -torch.inf).amax()
    return torch.where(
        mask & (lowest < highest), (values - mean) * torch.rsqrt(variance + eps), 0.0
    )


def token_mean(losses: Tokens, mask: Mask, *, num_tokens: int) -> Number:
    """Mean over the tokens of the optimizer step, with equal weights.

    Yu et al., "DAPO" (2025), eq. 8; also the usual loss of supervised fine-tuning.
    """
    return masked_sum(losses, mask) / max(num_tokens, 1)


def sequence_mean(losses: Tokens, mask: Mask, *, num_sequences: int) -> Number:
    """Mean over each completion's tokens, then over the optimizer step's completions.

    Shao et al., "DeepSeekMath" (2024), eq. 3. A completion without counted tokens adds 0.
    """
    lengths = mask.sum(1, keepdim=True).clamp(min=1)
    return masked_sum(losses / lengths, mask) / max(num_sequences, 1)


def sequence_sum(losses: Tokens, mask: Mask, *, num_sequences: int) -> Number:
    """Sum over a completion's tokens, then mean over the step's completions.

    The policy gradient of whole completions, log p(completion) = sum of log p(token): the weight of
    a completion grows with its length. verl's "seq-mean-token-sum".
    """
    return masked_sum(losses, mask) / max(num_sequences, 1)


def fixed_length_mean(losses: Tokens, mask: Mask, *, num_sequences: int, length: int) -> Number:
    """`sequence_sum` in units of a constant: sum / (completions in the step x length).

    A completion's length does not divide its loss, so short right answers are not favoured over
    long ones, nor long wrong ones over short. Liu et al., "Understanding R1-Zero-Like Training"
    (2025), section 3.2 (Dr. GRPO), https://arxiv.org/abs/2503.20783
    `length` is usually the longest completion allowed; changing it rescales the loss.
    """
    return sequence_sum(losses, mask, num_sequences=num_sequences) / length
