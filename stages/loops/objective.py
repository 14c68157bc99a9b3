"""The policy's loss on one optimizer step and its gradient, for PPO and the group methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms import kl
from stages.algorithms.aggregation import masked_sum
from stages.loops.choices.aggregation import Aggregation, Counts
from stages.loops.choices.coefficient import Coefficient
from stages.loops.choices.correction import Correction
from stages.loops.choices.kl_penalty import FullKlInLoss, KlInLoss, KlPenalty
from stages.loops.choices.surrogate import KlPenalised, Surrogate, Terms
from stages.loops.minibatches import Minibatch, rows_of
from stages.loops.old_logprobs import check_on_policy, frozen_logprobs
from stages.loops.rollouts import Rollouts
from stages.models import policy as policy_model
from stages.models.batch import Batch
from stages.params import Params


class ObjectiveConfig(Params):
    """The policy's loss: what is summed over tokens, and how."""

    surrogate: Surrogate
    aggregation: Aggregation
    kl: KlPenalty
    old_kl: Coefficient | None
    """Weight of the divergence from the old policy: with surrogate `kl_penalty`, else null."""
    correction: Correction
    entropy_coef: float = Field(ge=0)
    """Weight of the entropy, which is rewarded."""
    positive_nll_coef: float = Field(ge=0)
    """Weight of the mean - log p over the tokens of right completions (VAPO)."""

    @model_validator(mode="after")
    def _old_kl_belongs_to_its_surrogate(self) -> "ObjectiveConfig":
        if isinstance(self.surrogate, KlPenalised) != (self.old_kl is not None):
            raise ValueError(
                "old_kl is the weight of surrogate kl_penalty's divergence: give it there, and "
                "null with every other surrogate"
            )
        return self

    def dense(self) -> bool:
        """Whether a completion without advantage has a gradient all the same."""
        in_loss = isinstance(self.kl, KlInLoss | FullKlInLoss)
        return in_loss or self.entropy_coef > 0 or self.positive_nll_coef > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A micro-batch to learn from; every grid is laid out as `batch.mask`."""

    batch: Batch
    old_logprobs: Float[Tensor, "batch token"] | None
    """None: the only update of a rollout batch, where old and new are the same."""
    ref_logprobs: Float[Tensor, "batch token"] | None
    """None: without a reference."""
    sampler_logprobs: Float[Tensor, "batch token"]
    advantages: Float[Tensor, "batch token"]
    correct: Bool[Tensor, " batch"]


@dataclass(frozen=True, kw_only=True, slots=True)
class New:
    """What the model being trained says of a micro-batch; the gradient flows through these."""

    logprobs: Float[Tensor, "batch token"]
    entropies: Float[Tensor, "batch token"]
    full_kl: Float[Tensor, "batch token"] | None
    """The exact divergence from the reference, where the loss has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """The coefficients of an optimizer step that may change from step to step."""

    kl: float
    old_kl: float

    @staticmethod
    def start(config: ObjectiveConfig) -> "Weights":
        """The first ones."""
        old_kl = config.old_kl.start() if config.old_kl is not None else 0.0
        return Weights(kl=config.kl.coef.start(), old_kl=old_kl)

    def after(
        self, config: ObjectiveConfig, metrics: Mapping[str, float], num_samples: int
    ) -> "Weights":
        """The next ones, from what a rollout batch measured; a missing measurement changes none."""
        kl_coef, old_kl = self.kl, self.old_kl
        if "kl/sequence" in metrics:
            kl_coef = config.kl.coef.after(self.kl, metrics["kl/sequence"], num_samples)
        if config.old_kl is not None and "kl/old_after" in metrics:
            old_kl = config.old_kl.after(self.old_kl, metrics["kl/old_after"], num_samples)
        return Weights(kl=kl_coef, old_kl=old_kl)


def make_parts(
    policy: PreTrainedModel,
    minibatches: Sequence[Minibatch],
    *,
    rollouts: Rollouts,
    advantages: Float[Tensor, "completion longest"],
    ref_logprobs: Float[Tensor, "completion longest"] | None,
    correct: Sequence[bool],
    temperature: float,
    reuse: bool,
) -> list[list[Part]]:
    """What each mini-batch learns from; the grids are over all completions.

    Old log-probs are those of the very micro-batches trained on, in eval mode, so that the
    first ratio is exactly 1. Without `reuse` (one update in all) they are the new ones.
    """
    sampled = rollouts.sampler_logprobs()
    right = torch.tensor(correct)
    return [
        [
            Part(
                batch=batch,
                old_logprobs=old,
                ref_logprobs=None if ref_logprobs is None else rows_of(ref_logprobs, batch),
                sampler_logprobs=rows_of(sampled, batch),
                advantages=rows_of(advantages, batch),
                correct=right[batch.indices].to(batch.mask.device),
            )
            for batch, old in zip(
                minibatch.batches,
                frozen_logprobs(policy, minibatch.batches, temperature=temperature)
                if reuse
                else [None] * len(minibatch.batches),
                strict=True,
            )
        ]
        for minibatch in minibatches
    ]


def part_loss(
    new: New,
    part: Part,
    config: ObjectiveConfig,
    counts: Counts,
    weights: Weights,
    *,
    num_positive: int,
) -> tuple[Float[Tensor, ""], Bool[Tensor, "batch token"]]:
    """What a micro-batch adds to the loss of its optimizer step, and where a limit was active.

        loss = aggregation of [correction * surrogate + kl.coef * divergence - entropy_coef * H]
               + positive_nll_coef * token mean over right completions of - log p

    `counts` and `num_positive`, the tokens of right completions, are of the whole step: the
    sum over any split into micro-batches is the same.
    """
    mask = part.batch.mask
    old = new.logprobs.detach() if part.old_logprobs is None else part.old_logprobs
    losses, clipped = config.surrogate(
        Terms(
            logprobs=new.logprobs,
            old_logprobs=old,
            advantages=part.advantages,
            mask=mask,
            old_kl_coef=weights.old_kl,
        )
    )
    losses = config.correction(old, part.sampler_logprobs, mask) * losses
    if isinstance(config.kl, KlInLoss):
        assert part.ref_logprobs is not None
        divergence = config.kl(new.logprobs, old, part.ref_logprobs, mask)
        losses = losses + weights.kl * divergence
    if new.full_kl is not None:
        losses = losses + weights.kl * new.full_kl
    if config.entropy_coef > 0:
        losses = losses - config.entropy_coef * new.entropies
    loss = config.aggregation(losses, mask, counts)
    if config.positive_nll_coef > 0 and num_positive:
        right = mask & part.correct[:, None]
        loss = loss + config.positive_nll_coef * masked_sum(-new.logprobs, right) / num_positive
    return loss, clipped


def accumulate(
    policy: PreTrainedModel,
    reference: PreTrainedModel | None,
    parts: Sequence[Part],
    config: ObjectiveConfig,
    counts: Counts,
    weights: Weights,
    *,
    temperature: float,
    on_policy: bool,
) -> dict[str, float]:
    """Add the gradient of one optimizer step (`part_loss`) to the policy's.

    Returns the loss, and means over the step's tokens of what else there is to know.
    """
    num_positive = sum(int(part.batch.mask[part.correct].sum()) for part in parts)
    sums: dict[str, float] = {}
    for part in parts:
        new = _forward(policy, reference, part.batch, config, temperature)
        old = new.logprobs.detach() if part.old_logprobs is None else part.old_logprobs
        if on_policy and part.old_logprobs is not None:
            check_on_policy(new.logprobs, part.old_logprobs)
        loss, clipped = part_loss(new, part, config, counts, weights, num_positive=num_positive)
        loss.backward()
        mask = part.batch.mask
        with torch.no_grad():
            counted = {
                "loss/policy": loss,
                "entropy": masked_sum(new.entropies, mask),
                "clip_fraction": masked_sum(clipped.float(), mask),
                "kl/old": masked_sum(kl.k3(old, new.logprobs), mask),
                "sampling/logprob_gap": masked_sum((part.sampler_logprobs - old).abs(), mask),
            }
        for name, value in counted.items():
            sums[name] = sums.get(name, 0.0) + value.item()
    num_tokens = max(1, sum(int(part.batch.mask.sum()) for part in parts))
    return {
        name: value if name == "loss/policy" else value / num_tokens for name, value in sums.items()
    }


def _forward(
    policy: PreTrainedModel,
    reference: PreTrainedModel | None,
    batch: Batch,
    config: ObjectiveConfig,
    temperature: float,
) -> New:
    states = policy_model.states(policy, batch)
    logprobs, entropies = policy_model.state_logprobs(
        policy,
        states,
        batch,
        temperature=temperature,
        entropy_gradient=config.entropy_coef > 0,
    )
    full_kl = None
    if isinstance(config.kl, FullKlInLoss):
        assert reference is not None
        full_kl = policy_model.state_kl(policy, states, reference, batch, temperature=temperature)
    return New(logprobs=logprobs, entropies=entropies, full_kl=full_kl)
