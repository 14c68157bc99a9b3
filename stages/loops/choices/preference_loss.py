"""The losses that preferences can be learned with, by the `kind` in presets.yaml.

Each class holds one loss's numbers and calls it; the formulas are in `algorithms/losses/`:
`preference_losses`, `reference_free_losses` and `kto`. A loss of pairs maps `PairLogprobs` to
(losses, margins).
"""

from typing import Annotated, Literal

from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.losses.kto import kto_loss
from stages.algorithms.losses.preference_losses import (
    dpo_loss,
    hinge_loss,
    ipo_mean_loss,
    ipo_sum_loss,
    robust_dpo_loss,
)
from stages.algorithms.losses.reference_free_losses import cpo_loss, orpo_loss, simpo_loss
from stages.loops.choices.pair_logprobs import PairLogprobs
from stages.params import Params

PairLosses = tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]


class SigmoidLoss(Params):
    """DPO; with smoothed labels, conservative DPO."""

    kind: Literal["sigmoid"]
    """Names this loss."""
    beta: float = Field(gt=0)
    """Strength of the implied KL constraint to the reference; 0.01 to 0.5."""
    label_smoothing: float = Field(ge=0, lt=0.5)
    """Assumed probability that a label is wrong; 0: plain DPO."""

    def __call__(self, pairs: PairLogprobs) -> PairLosses:
        """See `dpo_loss`."""
        return dpo_loss(
            pairs.chosen,
            pairs.rejected,
            pairs.chosen_ref,
            pairs.rejected_ref,
            beta=self.beta,
            label_smoothing=self.label_smoothing,
        )


class RobustLoss(Params):
    """DPO, unbiased when labels are wrong at a known rate."""

    kind: Literal["robust"]
    """Names this loss."""
    beta: float = Field(gt=0)
    """Strength of the implied KL constraint to the reference."""
    flip_rate: float = Field(ge=0, lt=0.5)
    """Share of the labels that are wrong."""

    def __call__(self, pairs: PairLogprobs) -> PairLosses:
        """See `robust_dpo_loss`."""
        return robust_dpo_loss(
            pairs.chosen,
            pairs.rejected,
            pairs.chosen_ref,
            pairs.rejected_ref,
            beta=self.beta,
            flip_rate=self.flip_rate,
        )


class IpoSumLoss(Params):
    """IPO on summed log-ratios, as in the paper."""

    kind: Literal["ipo_sum"]
    """Names this loss."""
    beta: float = Field(gt=0)
    """The log-ratio margin is drawn to 1 / (2 beta)."""

    def __call__(self, pairs: PairLogprobs) -> PairLosses:
        """See `ipo_sum_loss`."""
        return ipo_sum_loss(
            pairs.chosen, pairs.rejected, pairs.chosen_ref, pairs.rejected_ref, beta=self.beta
        )


class IpoMeanLoss(Params):
    """IPO on log-ratios averaged per token, as in TRL."""

    kind: Literal["ipo_mean"]
    """Names this loss."""
    beta: float = Field(gt=0)
    """The log-ratio margin per token is drawn to 1 / (2 beta)."""

    def __call__(self, pairs: PairLogprobs) -> PairLosses:
        """See `ipo_mean_loss`."""
        return ipo_mean_loss(
            pairs.chosen,
            pairs.rejected,
            pairs.chosen_ref,
            pairs.rejected_ref,
            pairs.chosen_lengths,
            pairs.rejected_lengths,
            beta=self.beta,
        )


class HingeLoss(Params):
    """The hinge on the margin (SLiC, RSO)."""

    kind: Literal["hinge"]
    """Names this loss."""
    beta: float = Field(gt=0)
    """1 / beta is the log-ratio margin from which a pair is left alone."""

    def __call__(self, pairs: PairLogprobs) -> PairLosses:
        """See `hinge_loss`."""
        return hinge_loss(
            pairs.chosen, pairs.rejected, pairs.chosen_ref, pairs.rejected_ref, beta=self.beta
        )


class SimpoLoss(Params):
    """SimPO: average log-probabilities, no reference."""

    kind: Literal["simpo"]
    """Names this loss."""
    beta: float = Field(gt=0)
    """Scale of the reward, the log-probability per token; 2 to 10."""
    gamma: float = Field(ge=0)
    """Margin that the rewards should differ by; usually 0.3 to 0.5 of beta."""

    def __call__(self, pairs: PairLogprobs) -> PairLosses:
        """See `simpo_loss`."""
        return simpo_loss(
            pairs.chosen,
            pairs.rejected,
            pairs.chosen_lengths,
            pairs.rejected_lengths,
            beta=self.beta,
            gamma=self.gamma,
        )


class OrpoLoss(Params):
    """ORPO: fine-tuning on the chosen and an odds ratio, no reference."""

    kind: Literal["orpo"]
    """Names this loss."""
    lam: float = Field(ge=0)
    """Weight of the odds term; 0.1 to 1."""

    def __call__(self, pairs: PairLogprobs) -> PairLosses:
        """See `orpo_loss`."""
        return orpo_loss(
            pairs.chosen,
            pairs.rejected,
            pairs.chosen_lengths,
            pairs.rejected_lengths,
            lam=self.lam,
        )


class CpoLoss(Params):
    """CPO: DPO with a uniform reference, fine-tuning on the chosen beside it."""

    kind: Literal["cpo"]
    """Names this loss."""
    beta: float = Field(gt=0)
    """Scale of the margin."""
    alpha: float = Field(ge=0)
    """Weight of the likelihood term; 1 in the paper."""

    def __call__(self, pairs: PairLogprobs) -> PairLosses:
        """See `cpo_loss`."""
        return cpo_loss(
            pairs.chosen,
            pairs.rejected,
            pairs.chosen_lengths,
            beta=self.beta,
            alpha=self.alpha,
        )


class KtoLoss(Params):
    """KTO: single completions, desirable or not; it has a loop of its own, `loops/kto`."""

    kind: Literal["kto"]
    """Names this loss."""
    beta: float = Field(gt=0)
    """Risk aversion, in the place of DPO's beta; usually 0.1."""
    desirable_weight: float = Field(gt=0)
    """Weight of the losses of desirable rows."""
    undesirable_weight: float = Field(gt=0)
    """Weight of the losses of undesirable rows."""

    def __call__(
        self,
        logprobs: Float[Tensor, " batch"],
        ref_logprobs: Float[Tensor, " batch"],
        desirable: Bool[Tensor, " batch"],
        reference_point: Float[Tensor, ""],
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """Losses and implicit rewards: see `kto_loss`."""
        return kto_loss(
            logprobs,
            ref_logprobs,
            desirable,
            reference_point,
            beta=self.beta,
            desirable_weight=self.desirable_weight,
            undesirable_weight=self.undesirable_weight,
        )


PairLoss = (
    SigmoidLoss | RobustLoss | IpoSumLoss | IpoMeanLoss | HingeLoss | SimpoLoss | OrpoLoss | CpoLoss
)
"""The losses of pairs."""
PreferenceLoss = Annotated[PairLoss | KtoLoss, Field(discriminator="kind")]
"""Every loss that train_dpo can be given."""
