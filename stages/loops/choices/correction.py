"""What is done about the sampler's log-probs differing from the trainer's."""

from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.losses import importance_ratios
from stages.params import Params

Grid = Float[Tensor, "batch token"]
Mask = Bool[Tensor, "batch token"]


class NoCorrection(Params):
    """Every token weighs 1; the gap is measured all the same, and a large one stops the run."""

    kind: Literal["none"]

    def __call__(self, old_logprobs: Grid, sampler_logprobs: Grid, mask: Mask) -> Grid:  # noqa: ARG002
        """Ones."""
        return torch.ones_like(old_logprobs)


class TokenTruncated(Params):
    """Truncated importance sampling: min(trainer / sampler, cap) at each token."""

    kind: Literal["token_truncated"]
    cap: float = Field(ge=1)
    """The largest weight."""

    def __call__(self, old_logprobs: Grid, sampler_logprobs: Grid, mask: Mask) -> Grid:
        """See `importance_ratios.token_truncated`."""
        return importance_ratios.token_truncated(old_logprobs, sampler_logprobs, mask, cap=self.cap)


class TokenMasked(Params):
    """Tokens whose ratio is outside [low, high] are left out."""

    kind: Literal["token_masked"]
    low: float = Field(ge=0, le=1)
    """The smallest ratio that counts."""
    high: float = Field(ge=1)
    """The largest."""

    def __call__(self, old_logprobs: Grid, sampler_logprobs: Grid, mask: Mask) -> Grid:
        """See `importance_ratios.token_masked`."""
        return importance_ratios.token_masked(
            old_logprobs, sampler_logprobs, mask, low=self.low, high=self.high
        )


class SequenceTruncated(Params):
    """min(trainer / sampler, cap) of the whole completion."""

    kind: Literal["sequence_truncated"]
    cap: float = Field(ge=1)
    """The largest weight."""

    def __call__(self, old_logprobs: Grid, sampler_logprobs: Grid, mask: Mask) -> Grid:
        """See `importance_ratios.sequence_truncated`."""
        return importance_ratios.sequence_truncated(
            old_logprobs, sampler_logprobs, mask, cap=self.cap
        )


class SequenceMasked(Params):
    """Completions whose ratio is outside [low, high] are left out."""

    kind: Literal["sequence_masked"]
    low: float = Field(ge=0, le=1)
    """The smallest ratio that counts."""
    high: float = Field(ge=1)
    """The largest."""

    def __call__(self, old_logprobs: Grid, sampler_logprobs: Grid, mask: Mask) -> Grid:
        """See `importance_ratios.sequence_masked`."""
        return importance_ratios.sequence_masked(
            old_logprobs, sampler_logprobs, mask, low=self.low, high=self.high
        )


Correction = Annotated[
    NoCorrection | TokenTruncated | TokenMasked | SequenceTruncated | SequenceMasked,
    Field(discriminator="kind"),
]
