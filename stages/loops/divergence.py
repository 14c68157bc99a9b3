"""The divergence from the reference: where it enters, by which estimator, with what weight.

It is always measured, penalised on demand. Also log-probs of rollouts under frozen weights.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms import kl
from stages.algorithms.aggregation import masked_mean, masked_sum
from stages.choice import Choice, OneOf, by_name
from stages.loops import rollouts as rollout_batch
from stages.loops.rollouts import Rollouts
from stages.models.batch import Batch, micro_batches
from stages.models.device import ComputeConfig
from stages.models.policy import completion_logprobs
from stages.params import Params

Grid = Float[Tensor, "batch token"]
Estimator = Literal["k1", "k2", "k3"]
ESTIMATORS = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3}
"""See `algorithms/kl` for the gradient of each."""
# On a GPU another kernel may be chosen when gradients are on, and round differently.
ON_POLICY_TOLERANCE = {"cpu": 0.0, "cuda": 0.05}


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
        number = isinstance(content, int | float)
        return {"initial": content, "control": "none"} if number else content

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


def penalties(config: KlPenalty, coef: float, drawn: Rollouts, ref_logprobs: Grid) -> Grid:
    """The divergence's cost at each token, where it is part of the reward; else 0."""
    mask = drawn.mask()
    if not isinstance(config, KlInReward):
        return torch.zeros(mask.shape)
    cost = coef * ESTIMATORS[config.estimator](drawn.sampler_logprobs(), ref_logprobs)
    return torch.where(mask, cost, 0.0)


def from_reference(drawn: Rollouts, ref_logprobs: Grid) -> dict[str, float]:
    """Unbiased estimates of KL(policy || reference): k1 and k3 a token, k1 a completion.

    Over all that was drawn, under the log-probs it was drawn with: leaving out groups
    without signal would bias them.
    """
    mask, logprobs = drawn.mask(), drawn.sampler_logprobs()
    k1 = kl.k1(logprobs, ref_logprobs)
    return {
        "kl/k1": masked_mean(k1, mask).item(),
        "kl/k3": masked_mean(kl.k3(logprobs, ref_logprobs), mask).item(),
        "kl/sequence": masked_sum(k1, mask).item() / len(mask),
    }


def reference_logprobs(
    reference: PreTrainedModel,
    drawn: Rollouts,
    compute: ComputeConfig,
    pad_id: int,
    temperature: float,
) -> Grid:
    """log p of every token of every completion, laid out as `drawn.mask()`, on the CPU."""
    groups = rollout_batch.batch_groups(drawn, None, compute.row_tokens)
    batches = list(micro_batches(groups, compute, pad_id, reference.device))
    grid = torch.zeros(drawn.mask().shape)
    found = frozen_logprobs(reference, batches, temperature=temperature)
    for batch, logprobs in zip(batches, found, strict=True):
        grid[batch.indices, : logprobs.shape[1]] = logprobs.cpu()
    return grid


@torch.no_grad()
def frozen_logprobs(
    model: PreTrainedModel, batches: Sequence[Batch], *, temperature: float
) -> list[Float[Tensor, "_ _"]]:
    """Of each batch's completions, in eval mode; the temperature is the sampling one."""
    was_training = model.training
    model.eval()
    logprobs = [completion_logprobs(model, b, temperature=temperature)[0] for b in batches]
    model.train(was_training)
    return logprobs


def check_on_policy(logprobs: Grid, old_logprobs: Grid) -> None:
    """Assert that the ratio of new to old is 1 on the first mini-batch of an on-policy step."""
    gap = (logprobs - old_logprobs).abs().max().item()
    assert gap <= ON_POLICY_TOLERANCE[logprobs.device.type], (
        f"log-probs moved by {gap} before any update: the forward pass is not a function of "
        f"weights and tokens alone (dropout, or a kernel that is not deterministic)"
    )
