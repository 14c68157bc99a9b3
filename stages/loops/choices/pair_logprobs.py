"""What a loss of preference pairs may look at."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class PairLogprobs:
    """Log-probabilities of both completions of some pairs, summed over their tokens."""

    chosen: Float[Tensor, " pair"]
    """Of the policy, with gradient."""
    rejected: Float[Tensor, " pair"]
    chosen_ref: Float[Tensor, " pair"]
    """Of the frozen reference."""
    rejected_ref: Float[Tensor, " pair"]
    chosen_lengths: Int[Tensor, " pair"]
    """Tokens of the completion, the end-of-sequence token included."""
    rejected_lengths: Int[Tensor, " pair"]
