"""Where the divergence from the reference enters, by which estimator, with what weight."""

from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.algorithms import kl
from stages.loops.choices.coefficient import Coefficient, Fixed
from stages.params import Params

Grid = Float[Tensor, "batch token"]
Estimator = Literal["k1", "k2", "k3"]


def estimate(name: Estimator, logprobs: Grid, ref_logprobs: Grid) -> Grid:
    """The estimator called `name`; see `algorithms.kl` for what its gradient is."""
    match name:
        case "k1":
            return kl.k1(logprobs, ref_logprobs)
        case "k2":
            return kl.k2(logprobs, ref_logprobs)
        case "k3":
            return kl.k3(logprobs, ref_logprobs)


class NoKl(Params):
    """The divergence is measured and never penalised."""

    kind: Literal["none"]

    @property
    def coef(self) -> Coefficient:
        """Zero."""
        return Fixed(kind="fixed", value=0.0)


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
        penalty = estimate(self.estimator, from_ref, torch.zeros_like(from_ref))
        if self.corrected:
            penalty = kl.importance_corrected(penalty, from_old, torch.zeros_like(from_old))
        return penalty.expand(mask.shape)


class FullKlInLoss(Params):
    """The exact divergence over the vocabulary, added to the loss of each token."""

    kind: Literal["full"]
    coef: Coefficient


KlPenalty = Annotated[NoKl | KlInReward | KlInLoss | FullKlInLoss, Field(discriminator="kind")]
