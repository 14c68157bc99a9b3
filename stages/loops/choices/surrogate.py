"""The policy term at each token: which function of ratio and advantage is descended."""

from dataclasses import dataclass
from typing import Annotated, Literal

from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.losses.surrogates import (
    cispo,
    clipped_surrogate,
    dual_clip_surrogate,
    kl_penalty_surrogate,
    reinforce,
    sequence_ratio_surrogate,
)
from stages.params import Params

LossAndClipped = tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What a surrogate is a function of."""

    logprobs: Float[Tensor, "batch token"]
    old_logprobs: Float[Tensor, "batch token"]
    advantages: Float[Tensor, "batch token"]
    mask: Bool[Tensor, "batch token"]
    old_kl_coef: float
    """Weight of the divergence from the old policy, for the one surrogate that has it."""


class Clip(Params):
    """PPO's clip; with `high` above `low`, DAPO's clip-higher."""

    kind: Literal["clip"]
    low: float = Field(ge=0, lt=1)
    """How far the ratio may fall below 1 before its gradient stops."""
    high: float = Field(ge=0)
    """How far it may rise above 1."""

    def __call__(self, terms: Terms) -> LossAndClipped:
        """See `clipped_surrogate`."""
        return clipped_surrogate(
            terms.logprobs,
            terms.old_logprobs,
            terms.advantages,
            terms.mask,
            clip_low=self.low,
            clip_high=self.high,
        )


class DualClip(Params):
    """PPO's clip, and a bound on the loss where the advantage is negative."""

    kind: Literal["dual_clip"]
    low: float = Field(ge=0, lt=1)
    """How far the ratio may fall below 1."""
    high: float = Field(ge=0)
    """How far it may rise above 1."""
    cap: float = Field(gt=1)
    """With a negative advantage A the loss is at most -cap A."""

    def __call__(self, terms: Terms) -> LossAndClipped:
        """See `dual_clip_surrogate`."""
        return dual_clip_surrogate(
            terms.logprobs,
            terms.old_logprobs,
            terms.advantages,
            terms.mask,
            clip_low=self.low,
            clip_high=self.high,
            cap=self.cap,
        )


class SequenceRatio(Params):
    """One ratio a completion: GSPO, or sequence-level GRPO."""

    kind: Literal["sequence_ratio"]
    low: float = Field(ge=0, lt=1)
    """How far the ratio may fall below 1."""
    high: float = Field(ge=0)
    """How far it may rise above 1."""
    normalise: bool
    """True: exp of the mean log-ratio a token (GSPO); false: of the sum."""

    def __call__(self, terms: Terms) -> LossAndClipped:
        """See `sequence_ratio_surrogate`."""
        return sequence_ratio_surrogate(
            terms.logprobs,
            terms.old_logprobs,
            terms.advantages,
            terms.mask,
            clip_low=self.low,
            clip_high=self.high,
            normalise=self.normalise,
        )


class Cispo(Params):
    """The log-probability, weighted by the capped ratio as a constant."""

    kind: Literal["cispo"]
    cap: float = Field(gt=0)
    """The largest weight itself, not its distance from 1."""

    def __call__(self, terms: Terms) -> LossAndClipped:
        """See `cispo`."""
        return cispo(terms.logprobs, terms.old_logprobs, terms.advantages, terms.mask, cap=self.cap)


class Reinforce(Params):
    """Advantage times log-probability; no ratio."""

    kind: Literal["reinforce"]

    def __call__(self, terms: Terms) -> LossAndClipped:
        """See `reinforce`."""
        return reinforce(terms.logprobs, terms.old_logprobs, terms.advantages, terms.mask)


class KlPenalised(Params):
    """The unclipped ratio, held near the old policy by a penalty whose weight is `old_kl`."""

    kind: Literal["kl_penalty"]

    def __call__(self, terms: Terms) -> LossAndClipped:
        """See `kl_penalty_surrogate`."""
        return kl_penalty_surrogate(
            terms.logprobs,
            terms.old_logprobs,
            terms.advantages,
            terms.mask,
            beta=terms.old_kl_coef,
        )


Surrogate = Annotated[
    Clip | DualClip | SequenceRatio | Cispo | Reinforce | KlPenalised,
    Field(discriminator="kind"),
]
