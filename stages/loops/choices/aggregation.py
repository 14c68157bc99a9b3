"""How the tokens' losses become one number: what a token and a completion weigh."""

from dataclasses import dataclass
from typing import Annotated, Literal

from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.algorithms import aggregation
from stages.params import Params


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Of one optimizer step, over all its micro-batches."""

    num_tokens: int
    """Tokens that count, those of groups without a signal included."""
    num_sequences: int
    """Completions, masked ones included."""
    max_length: int
    """Longest completion that could have been sampled."""


class SequenceMean(Params):
    """Every completion weighs the same: GRPO."""

    kind: Literal["sequence_mean"]

    def __call__(
        self,
        losses: Float[Tensor, "batch token"],
        mask: Bool[Tensor, "batch token"],
        counts: Counts,
    ) -> Float[Tensor, ""]:
        """See `aggregation.sequence_mean`."""
        return aggregation.sequence_mean(losses, mask, num_sequences=counts.num_sequences)


class TokenMean(Params):
    """Every token weighs the same: DAPO."""

    kind: Literal["token_mean"]

    def __call__(
        self,
        losses: Float[Tensor, "batch token"],
        mask: Bool[Tensor, "batch token"],
        counts: Counts,
    ) -> Float[Tensor, ""]:
        """See `aggregation.token_mean`."""
        return aggregation.token_mean(losses, mask, num_tokens=counts.num_tokens)


class FixedLength(Params):
    """Every token weighs one over the longest length: Dr. GRPO."""

    kind: Literal["fixed_length"]

    def __call__(
        self,
        losses: Float[Tensor, "batch token"],
        mask: Bool[Tensor, "batch token"],
        counts: Counts,
    ) -> Float[Tensor, ""]:
        """See `aggregation.fixed_length_mean`; the length is `max_new_tokens`."""
        return aggregation.fixed_length_mean(
            losses, mask, num_sequences=counts.num_sequences, length=counts.max_length
        )


class SequenceSum(Params):
    """A completion's loss is its log-probability's, summed: REINFORCE on sequences, RLOO."""

    kind: Literal["sequence_sum"]

    def __call__(
        self,
        losses: Float[Tensor, "batch token"],
        mask: Bool[Tensor, "batch token"],
        counts: Counts,
    ) -> Float[Tensor, ""]:
        """See `aggregation.sequence_sum`."""
        return aggregation.sequence_sum(losses, mask, num_sequences=counts.num_sequences)


Aggregation = Annotated[
    SequenceMean | TokenMean | FixedLength | SequenceSum, Field(discriminator="kind")
]
