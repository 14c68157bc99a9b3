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
