"""The policy's loss on an optimizer step, for PPO and the group methods: choices and formula."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor

from stages.algorithms import aggregation
from stages.algorithms.aggregation import masked_sum
from stages.algorithms.losses import importance_ratios, surrogates
from stages.choice import Choice, OneOf
from stages.loops.divergence import Coefficient, Grid, KlInLoss, KlPenalty
from stages.models.batch import Batch
from stages.models.policy import TokenLogprobs
from stages.params import Params

Surrogate = Annotated[
    Choice,
    OneOf(
        {
            "clip": surrogates.clipped_surrogate,
            "dual_clip": surrogates.dual_clip_surrogate,
            "sequence_ratio": surrogates.sequence_ratio_surrogate,
            "cispo": surrogates.cispo,
            "reinforce": surrogates.reinforce,
            "kl_penalty": surrogates.kl_penalty_surrogate,
        },
        given=("logprobs", "old_logprobs", "advantages", "mask", "beta"),
        bounds={
            "low": Field(ge=0, lt=1),
            "high": Field(ge=0),
            "cap": Field(gt=0),
            "dual_clip.cap": Field(gt=1),
        },
    ),
]
"""The policy term at each token: which function of ratio and advantage is descended."""

Aggregation = Annotated[
    Choice,
    OneOf(
        {
            "sequence_mean": aggregation.sequence_mean,
            "token_mean": aggregation.token_mean,
            "fixed_length": aggregation.fixed_length_mean,
            "sequence_sum": aggregation.sequence_sum,
        },
        given=("losses", "mask", "num_tokens", "num_sequences", "length"),
    ),
]
"""How the tokens' losses become one number: what a token and a completion weigh."""


def uncorrected(old_logprobs: Grid) -> Grid:
    """Every token weighs 1; the gap is measured all the same, and a large one stops the run."""
    return torch.ones_like(old_logprobs)


Correction = Annotated[
    Choice,
    OneOf(
        {
            "none": uncorrected,
            "token_truncated": importance_ratios.token_truncated,
            "token_masked": importance_ratios.token_masked,
            "sequence_truncated": importance_ratios.sequence_truncated,
            "sequence_masked": importance_ratios.sequence_masked,
        },
        given=("old_logprobs", "sampler_logprobs", "mask"),
        bounds={"cap": Field(ge=1), "low": Field(ge=0, le=1), "high": Field(ge=1)},
    ),
]
"""The weight of a token whose log-prob differs between sampler and trainer."""


class ObjectiveConfig(Params):
    """The policy's loss: what is summed over tokens, and how."""

    surrogate: Surrogate
    aggregation: Aggregation
    kl: KlPenalty
    """Of the divergence from the reference."""
    old_kl: Coefficient | None
    """Weight of the divergence from the old policy: with surrogate `kl_penalty`, else null."""
    correction: Correction
    entropy_coef: float = Field(ge=0)
    """Weight of the entropy, which is rewarded."""
    positive_nll_coef: float = Field(ge=0)
    """Weight of the mean - log p over the tokens of right completions (VAPO)."""

    @model_validator(mode="after")
    def _old_kl_belongs_to_its_surrogate(self) -> "ObjectiveConfig":
        if (self.surrogate.kind == "kl_penalty") != (self.old_kl is not None):
            raise ValueError("surrogate kl_penalty has a weight old_kl, every other one has null")
        return self

    def dense(self) -> bool:
        """Whether a completion without advantage has a gradient all the same."""
        in_loss = isinstance(self.kl, KlInLoss)
        return in_loss or self.entropy_coef > 0 or self.positive_nll_coef > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """Of one optimizer step, over all its micro-batches."""

    num_tokens: int
    """Tokens that count, those of groups without a signal included."""
    num_sequences: int
    """Completions, masked ones included."""
    max_length: int
    """Longest completion that could have been sampled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A micro-batch to learn from; every grid is laid out as `batch.mask`."""

    batch: Batch
    correct: Bool[Tensor, " batch"]
    advantages: Grid
    sampler_logprobs: Grid
    old_logprobs: Grid | None
    """None: the only update of a rollout batch, where old and new are the same."""
    ref_logprobs: Grid | None = None
    """None: without a reference."""
    old_values: Grid | None = None
    """With a value model, what it said before its update; and what it is to say."""
    returns: Grid | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """The coefficients of an optimizer step that may change from step to step."""

    kl: float
    old_kl: float

    @staticmethod
    def start(config: ObjectiveConfig) -> "Weights":
        """The first ones."""
        old_kl = config.old_kl.initial if config.old_kl else 0.0
        return Weights(kl=config.kl.coef.initial, old_kl=old_kl)

    def after(
        self, config: ObjectiveConfig, metrics: Mapping[str, float], num_samples: int
    ) -> "Weights":
        """The next ones, from what a rollout batch measured; a missing measurement changes none."""

        def follow(coef: float, by: Coefficient | None, name: str) -> float:
            if by is None or name not in metrics:
                return coef
            return by.control(coef=coef, measured=metrics[name], num_samples=num_samples)

        kl_coef = follow(self.kl, config.kl.coef, "kl/sequence")
        return Weights(kl=kl_coef, old_kl=follow(self.old_kl, config.old_kl, "kl/old_after"))


def part_loss(
    new: TokenLogprobs,
    part: Part,
    config: ObjectiveConfig,
    counts: Counts,
    weights: Weights,
    *,
    num_positive: int,
) -> tuple[Float[Tensor, ""], Bool[Tensor, "batch token"]]:
    """A micro-batch's share of the loss of its optimizer step, and where a limit was active.

        loss = aggregation of [correction * surrogate + kl.coef * divergence - entropy_coef * H]
               + positive_nll_coef * token mean over right completions of - log p

    `counts` and `num_positive`, the tokens of right completions, are of the whole step.
    """
    mask = part.batch.mask
    old = new.logprobs.detach() if part.old_logprobs is None else part.old_logprobs
    losses, clipped = config.surrogate(
        logprobs=new.logprobs,
        old_logprobs=old,
        advantages=part.advantages,
        mask=mask,
        beta=weights.old_kl,
    )
    losses = losses * config.correction(
        old_logprobs=old, sampler_logprobs=part.sampler_logprobs, mask=mask
    )
    if isinstance(config.kl, KlInLoss):
        assert part.ref_logprobs is not None
        losses = losses + weights.kl * config.kl(new.logprobs, old, part.ref_logprobs, mask)
    if config.entropy_coef > 0:
        losses = losses - config.entropy_coef * new.entropies
    loss = config.aggregation(
        losses=losses,
        mask=mask,
        num_tokens=counts.num_tokens,
        num_sequences=counts.num_sequences,
        length=counts.max_length,
    )
    if config.positive_nll_coef > 0 and num_positive:
        right = mask & part.correct[:, None]
        loss = loss + config.positive_nll_coef * masked_sum(-new.logprobs, right) / num_positive
    return loss, clipped
