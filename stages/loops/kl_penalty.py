"""Where the divergence from the reference enters, by which estimator, and with what weight."""

from typing import Annotated, Any, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor

from stages.algorithms import kl
from stages.choice import Choice, OneOf, by_name
from stages.params import Params

Grid = Float[Tensor, "batch token"]
Estimator = Literal["k1", "k2", "k3"]
ESTIMATORS = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3}
"""See `algorithms/kl` for the gradient of each."""


def constant(coef: float) -> float:
    """The weight stays as it is."""
    return coef


Control = Annotated[
    Choice,
    OneOf(
        {"none": constant, "adaptive": kl.adaptive_coef, "doubling": kl.doubling_coef},
        given=("coef", "measured", "num_samples"),
        bounds={"target": Field(gt=0), "horizon": Field(gt=0)},
    ),
]
"""How a weight follows the divergence that was measured."""


class Coefficient(Params):
    """The weight of a divergence; a number alone is one that stays."""

    initial: float = Field(ge=0)
    """The first one."""
    control: Control

    @model_validator(mode="before")
    @classmethod
    def _a_number_stays(cls, content: Any) -> Any:
        if isinstance(content, int | float):
            return {"initial": content, "control": "none"}
        return content

    @model_validator(mode="after")
    def _what_is_0_cannot_be_scaled(self) -> "Coefficient":
        if self.control.kind != "none" and self.initial == 0:
            raise ValueError(f"control {self.control.kind} scales the weight: initial above 0")
        return self


class NoKl(Params):
    """The divergence is measured and never penalised."""

    kind: Literal["none"]

    @property
    def coef(self) -> Coefficient:
        """Zero."""
        return Coefficient.model_validate(0.0)


class KlInReward(Params):
    """Subtracted from the reward of each token, before advantages: no gradient of its own."""

    kind: Literal["reward"]
    estimator: Estimator
    """k1 there has, through the policy gradient, the gradient of KL(policy || reference)."""
    coef: Coefficient


class KlInLoss(Params):
    """Added to the loss of each token, differentiated."""

    kind: Literal["loss"]
    estimator: Estimator
    """k1's expected gradient is zero, k2's is that of the reverse KL, k3's of the forward KL."""
    level: Literal["token", "sequence"]
    """`sequence`: one estimate of the completion's summed log-probs, the same at each token."""
    corrected: bool
    """Multiply by the ratio of new to old policy, with its gradient."""
    coef: Coefficient

    def __call__(
        self,
        logprobs: Grid,
        old_logprobs: Grid,
        ref_logprobs: Grid,
        mask: Bool[Tensor, "batch token"],
    ) -> Grid:
        """The penalty at each token, before its weight."""
        # Differences before sums: a sum of log-probs rounds more coarsely than it differs.
        from_ref, from_old = (
            torch.where(mask, logprobs, 0.0) - torch.where(mask, others.detach(), 0.0)
            for others in (ref_logprobs, old_logprobs)
        )
        if self.level == "sequence":
            from_ref, from_old = from_ref.sum(1, keepdim=True), from_old.sum(1, keepdim=True)
        penalty = ESTIMATORS[self.estimator](from_ref, torch.zeros_like(from_ref))
        if self.corrected:
            penalty = kl.importance_corrected(penalty, from_old, torch.zeros_like(from_old))
        return penalty.expand(mask.shape)


class FullKlInLoss(Params):
    """The exact divergence over the vocabulary, added to the loss of each token."""

    kind: Literal["full"]
    coef: Coefficient


KlPenalty = Annotated[
    NoKl | KlInReward | KlInLoss | FullKlInLoss,
    Field(discriminator="kind"),
    BeforeValidator(by_name),
]
