"""The divergence from the reference: where it enters, by which estimator, with what weight.

It is always measured, penalised on demand. Also log-probs of rollouts under frozen weights.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor

from stages.algorithms import kl
from stages.algorithms.aggregation import masked_mean, masked_sum
from stages.choice import Choice, OneOf, by_name
from stages.loops import rollouts as rollout_batch
from stages.loops import work
from stages.loops.rollouts import Actor, Rollouts
from stages.models.batch import Batch, frozen
from stages.models.policy import Policy
from stages.params import Params

Grid = Float[Tensor, "batch token"]
Mask = Bool[Tensor, "batch token"]
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
    coef: ClassVar = Coefficient.model_validate(0.0)


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

    def __call__(self, logprobs: Grid, old_logprobs: Grid, ref_logprobs: Grid, mask: Mask) -> Grid:
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


KlPenalty = Annotated[
    NoKl | KlInReward | KlInLoss, Field(discriminator="kind"), BeforeValidator(by_name)
]


class Measured(NamedTuple):
    """How far a rollout batch is from the reference, and what that costs."""

    ref_logprobs: Grid | None
    """Laid out as `Rollouts.mask()`, on the CPU; None: without a reference."""
    penalties: Grid
    """The cost at each token, where the divergence is part of the reward; else 0."""
    metrics: dict[str, int | float]
    """Unbiased estimates of KL(policy || reference): k1 and k3 a token, k1 a completion."""


def measure(
    actor: Actor, drawn: Rollouts, config: KlPenalty, coef: float, temperature: float
) -> Measured:
    """The divergence over all that was drawn, under the log-probs it was drawn with.

    Leaving out groups without signal would bias it.
    """
    mask, logprobs = drawn.mask(), drawn.sampler_logprobs()
    penalties = torch.zeros(mask.shape)
    if actor.reference is None:
        return Measured(None, penalties, {})
    batches = rollout_batch.batches(actor, drawn)
    ref_logprobs = torch.zeros(mask.shape)
    reference = actor.reference
    found = frozen_logprobs(reference, batches, temperature=temperature, adapted=False)
    for batch, rows in zip(batches, found, strict=True):
        ref_logprobs[batch.indices, : rows.shape[1]] = rows.cpu()
    if isinstance(config, KlInReward):
        cost = coef * ESTIMATORS[config.estimator](logprobs, ref_logprobs)
        penalties = torch.where(mask, cost, 0.0)
    k1 = kl.k1(logprobs, ref_logprobs)
    metrics = {
        "kl/k1": masked_mean(k1, mask).item(),
        "kl/k3": masked_mean(kl.k3(logprobs, ref_logprobs), mask).item(),
        "kl/sequence": masked_sum(k1, mask).item() / len(mask),
        **work.of_batches("reference", "read", batches),
    }
    return Measured(ref_logprobs, penalties, metrics)


def frozen_logprobs(
    model: Policy, batches: Sequence[Batch], *, temperature: float, adapted: bool = True
) -> list[Float[Tensor, "_ _"]]:
    """Of each batch's completions, in eval mode; the temperature is the sampling one."""
    with frozen(model):
        how = {"temperature": temperature, "entropy": False, "adapted": adapted}
        return [model(one, **how).logprobs for one in batches]


def check_on_policy(logprobs: Grid, old_logprobs: Grid) -> None:
    """Assert that the ratio of new to old is 1 on the first mini-batch of an on-policy step."""
    gap = (logprobs - old_logprobs).abs().max().item()
    assert gap <= ON_POLICY_TOLERANCE[logprobs.device.type], (
        f"log-probs moved by {gap} before any update: the forward pass is not a function of "
        f"weights and tokens alone (dropout, or a kernel that is not deterministic)"
    )
