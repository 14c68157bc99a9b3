"""From a loss at each token to one number, with counts over the whole optimizer step.

A micro-batch contributes its *sum*, divided by a count taken over every micro-batch of
the step before the first backward pass. So any split into micro-batches gives the same
gradient, which dividing by each micro-batch's own count does not.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms.masking import masked_sum


def token_mean(
    losses: Float[Tensor, "batch token"], mask: Bool[Tensor, "batch token"], *, num_tokens: int
) -> Float[Tensor, ""]:
    """Every token of the step weighs the same: sum / tokens in the step.

    Yu et al., "DAPO" (2025), eq. 8; also the usual loss of supervised fine-tuning.
    """
    return masked_sum(losses, mask) / max(num_tokens, 1)


def sequence_mean(
    losses: Float[Tensor, "batch token"], mask: Bool[Tensor, "batch token"], *, num_sequences: int
) -> Float[Tensor, ""]:
    """Every completion weighs the same: mean over its tokens, then over the step's completions.

    Shao et al., "DeepSeekMath" (2024), eq. 3. A completion without counted tokens adds 0.
    """
    lengths = mask.sum(1, keepdim=True).clamp(min=1)
    return masked_sum(losses / lengths, mask) / max(num_sequences, 1)


def sequence_sum(
    losses: Float[Tensor, "batch token"], mask: Bool[Tensor, "batch token"], *, num_sequences: int
) -> Float[Tensor, ""]:
    """Sum over a completion's tokens, then mean over the step's completions.

    The policy gradient of whole completions, log p(completion) = sum of log p(token): a
    long completion weighs as much as it has tokens. verl's "seq-mean-token-sum".
    """
    return masked_sum(losses, mask) / max(num_sequences, 1)


def fixed_length_mean(
    losses: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    num_sequences: int,
    length: int,
) -> Float[Tensor, ""]:
    """`sequence_sum` in units of a constant: sum / (completions in the step x length).

    No completion's own length divides its loss, so short right answers are not favoured
    over long ones, nor long wrong ones over short. Liu et al., "Understanding
    R1-Zero-Like Training" (2025), section 3.2 (Dr. GRPO), https://arxiv.org/abs/2503.20783

    Args:
        losses: one for each token.
        mask: True at tokens that count.
        num_sequences: completions of the whole optimizer step.
        length: usually the longest completion allowed; a change of it rescales the loss.

    Raises:
        ValueError: `length` not positive.
    """
    if length < 1:
        raise ValueError(
            f"expected a length of at least 1, found {length}: "
            "give the longest completion that sampling allows"
        )
    return sequence_sum(losses, mask, num_sequences=num_sequences) / length
