"""Training on preference pairs without sampling: DPO and its relatives.

The summary of a run warns of likelihood displacement. A loss that depends only on the margin also
falls if both completions become less likely, the rejected one faster: probability then moves to
other completions. Razin et al., "Unintentional Unalignment: Likelihood Displacement in Direct
Preference Optimization" (2024), https://arxiv.org/abs/2410.08847
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from stages.algorithms.losses import preference_losses, reference_free_losses
from stages.algorithms.losses.preference_losses import LossesAndMargins, PairLogprobs
from stages.config import Params, check_choice, check_hyperparameters
from stages.loops import epochs, work
from stages.loops.epochs import EpochsConfig
from stages.loops.ref_logprobs import sequence_logprobs
from stages.loops.state import Metrics, State, optimise
from stages.loops.work import Step
from stages.models.batch import Batch, Group, freeze_insertions, model_batches
from stages.models.policy import Policy
from stages.records.preferences import Preference

logger = logging.getLogger(__name__)

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
ErrorRate = Annotated[float, Field(ge=0, lt=0.5)]
PAIR_LOSSES: dict[str, Callable[..., LossesAndMargins]] = {
    "sigmoid": preference_losses.dpo_loss,
    "robust": preference_losses.robust_dpo_loss,
    "ipo_sum": preference_losses.ipo_sum_loss,
    "ipo_mean": preference_losses.ipo_mean_loss,
    "hinge": preference_losses.hinge_loss,
    "simpo": reference_free_losses.simpo_loss,
    "orpo": reference_free_losses.orpo_loss,
    "cpo": reference_free_losses.cpo_loss,
}
KTO = "kto"
"""Kind of loss that learns from single completions, each desirable or not: loops/kto."""
HYPERPARAMETERS = {
    "sigmoid": ("beta", "label_smoothing"),
    "robust": ("beta", "flip_rate"),
    "ipo_sum": ("beta",),
    "ipo_mean": ("beta",),
    "hinge": ("beta",),
    "simpo": ("beta", "gamma"),
    "orpo": ("lam",),
    "cpo": ("beta", "alpha"),
    KTO: ("beta", "desirable_weight", "undesirable_weight"),
}
"""Kind of loss -> its hyperparameters; it is an error to set any other."""

BOTH_FELL = (
    "the chosen completions became less likely than under the reference, together with the "
    "rejected ones: mean log-ratios %(final_chosen_log_ratio).2f and "
    "%(final_rejected_log_ratio).2f over the last tenth of the steps. Look at the greedy "
    "accuracy; lower the learning rate or num_epochs, or take a loss with a likelihood term "
    "(orpo, cpo)."
)
MIN_FALL = 0.1
"""Smallest decrease of a mean log-ratio, in nats, that counts: below that it is rounding and
chance."""


class PreferenceConfig(EpochsConfig):
    """Sizes and rates, the same for every loss. A row is a pair; of KTO, a single completion."""

    num_checkpoints: int = Field(ge=0)
    """Intermediate policies that are saved, evenly spaced, each as large as the policy; 0: none."""


class PreferencePreset(Params):
    """A loss and its hyperparameters, flat: `{kind: simpo, beta: 2.0, gamma: 1.0}`."""

    kind: str
    """Name of the loss: a key of HYPERPARAMETERS."""
    beta: Positive = 0.5
    """Strength of the implied KL constraint; the risk aversion of KTO."""
    label_smoothing: ErrorRate = 0.0
    """Assumed probability that a label is wrong (conservative DPO)."""
    flip_rate: ErrorRate = 0.1
    """Rate of flipped labels that robust DPO corrects for."""
    gamma: NotNegative = 1.0
    """Target margin of SimPO."""
    lam: NotNegative = 0.1
    """Weight of ORPO's odds ratio."""
    alpha: NotNegative = 1.0
    """Weight of CPO's likelihood term."""
    desirable_weight: Positive = 1.0
    undesirable_weight: Positive = 1.0
    """Weights of KTO's two kinds of completions."""
    token_budget: Annotated[int, Field(gt=0)] | None = None
    """Tokens to train on in place of `num_epochs`; the step that reaches it is the last."""

    @field_validator("kind")
    @classmethod
    def _is_a_kind(cls, kind: str) -> str:
        return check_choice(kind, HYPERPARAMETERS)

    @model_validator(mode="after")
    def _has_the_hyperparameters_of_its_kind(self) -> "PreferencePreset":
        check_hyperparameters(self, "kind", HYPERPARAMETERS, self.kind)
        return self

    def hyperparameters(self) -> dict[str, float]:
        """The numbers that the loss uses, by their names."""
        return {name: getattr(self, name) for name in HYPERPARAMETERS[self.kind]}


def compute_pair_losses(preset: PreferencePreset, pairs: PairLogprobs) -> LossesAndMargins:
    """Losses and margins of pairs, of any kind but KTO."""
    return PAIR_LOSSES[preset.kind](pairs, **preset.hyperparameters())


def make_schedule(
    lengths: Sequence[int], preset: PreferencePreset, config: PreferenceConfig, seed: int
) -> list[list[int]]:
    """Row numbers of each optimizer step, until the epochs or the token budget end."""
    if (budget := preset.token_budget) is not None:
        return epochs.batches_within(lengths, budget, config.batch_size, seed)
    return epochs.batches(len(lengths), config.num_epochs, config.batch_size, seed)


def train(
    model: Policy,
    pairs: Sequence[Preference],
    ref_logprobs: Float[Tensor, "pair 2"],
    schedule: Sequence[Sequence[int]],
    preset: PreferencePreset,
    config: PreferenceConfig,
    state: State | None = None,
) -> Iterator[Step]:
    """Optimizer step for each list of pair numbers in `schedule`; `model` is changed in place.

    Loss: mean of `expected_loss` over the step's pairs, each pair's completions in one micro-batch.
    Log-ratios to the reference are logged for every loss, also for one that does not use them.
    """

    def gradient(_: int, numbers: Sequence[int]) -> Metrics:
        sums: dict[str, float] = {}
        batches = list(model_batches(model, make_pair_groups(pairs, numbers)))
        for batch in batches:
            logprobs = compute_pair_logprobs(model, batch, ref_logprobs)
            losses, margins = expected_loss(preset, logprobs, read_pair_labels(pairs, batch))
            (losses.sum() / len(numbers)).backward()
            for name, values in {
                "loss/preference": losses,
                "margin/mean": margins,
                "margin/accuracy": (margins > 0).float(),
                "log_ratios/chosen": logprobs.chosen_logprobs - logprobs.chosen_ref_logprobs,
                "log_ratios/rejected": logprobs.rejected_logprobs - logprobs.rejected_ref_logprobs,
                "logprobs/chosen": logprobs.chosen_logprobs,
                "logprobs/rejected": logprobs.rejected_logprobs,
            }.items():
                sums[name] = sums.get(name, 0.0) + values.detach().sum().item()
        return {
            **{name: value / len(numbers) for name, value in sums.items()},
            **work.count_trained("policy", batches),
        }

    return optimise(model, config.optim, schedule, gradient, state)


def make_pair_groups(pairs: Sequence[Preference], numbers: Sequence[int]) -> list[Group]:
    """Groups of two: completion 2i is the chosen one of pair i, 2i + 1 the rejected."""
    return [
        Group(
            prompt_ids=pairs[i].prompt_ids,
            completions=[pairs[i].chosen_ids, pairs[i].rejected_ids],
            indices=[2 * i, 2 * i + 1],
            insertions=[
                freeze_insertions(pairs[i].chosen_insertions),
                freeze_insertions(pairs[i].rejected_insertions),
            ],
        )
        for i in numbers
    ]


def read_pair_labels(pairs: Sequence[Preference], batch: Batch) -> Float[Tensor, " pair"]:
    """P(chosen is better) of the batch's pairs, on its device."""
    labels = [pairs[i // 2].probability for i in batch.indices[::2]]
    return torch.tensor(labels, device=batch.mask.device)


def compute_pair_logprobs(
    model: Policy, batch: Batch, ref_logprobs: Float[Tensor, "pair 2"]
) -> PairLogprobs:
    """Log-probs of a micro-batch of pairs, under the model and the reference."""
    policy = sequence_logprobs(model, batch).view(-1, 2)
    ref = ref_logprobs.view(-1)[batch.indices].to(policy.device).view(-1, 2)
    lengths = batch.mask.sum(1).view(-1, 2)
    return PairLogprobs(*policy.unbind(1), *ref.unbind(1), *lengths.unbind(1))


def expected_loss(
    preset: PreferencePreset, pairs: PairLogprobs, probabilities: Float[Tensor, " pair"]
) -> LossesAndMargins:
    """Expected loss if `chosen` is better with probability p, and margins of (chosen, rejected).

        loss = p loss(chosen, rejected) + (1 - p) loss(rejected, chosen)

    With DPO's loss this is conservative DPO in which each pair has its own label smoothing, 1 - p
    (Mitchell, "A note on DPO with noisy preferences", 2023). A pair with p = 1 has exactly the loss
    and the margin of `compute_pair_losses`.
    """
    losses, margins = compute_pair_losses(preset, pairs)
    if bool((probabilities == 1).all()):
        return losses, margins
    swapped, _ = compute_pair_losses(preset, pairs.swapped())
    # With p = 1 and an infinite swapped loss, 0 times infinity would be NaN.
    mixed = probabilities * losses + (1 - probabilities) * swapped
    return torch.where(probabilities == 1, losses, mixed), margins


def summarise(history: Sequence[Mapping[str, int | float]]) -> dict[str, Any]:
    """Summary for metrics.json: sums over all steps, and means over the last tenth (`final`).

    Log-ratios are to the reference, where training starts: 0 is no change. Warns if both kinds of
    completions became less likely.
    """
    ends = [late_mean(history, f"log_ratios/{side}") for side in ("chosen", "rejected")]
    summary = {
        **work.sum_tokens(history),
        "final_margin_accuracy": late_mean(history, "margin/accuracy"),
        "final_chosen_log_ratio": ends[0],
        "final_rejected_log_ratio": ends[1],
        "both_logprobs_fell": all(end is not None and end <= -MIN_FALL for end in ends),
    }
    if summary["both_logprobs_fell"]:
        logger.warning(BOTH_FELL, summary)
    return summary


def late_mean(history: Sequence[Mapping[str, float]], name: str) -> float | None:
    """Mean of a metric over the last tenth of the steps that have it; None if none has."""
    values = [metrics[name] for metrics in history if name in metrics]
    late = values[-max(1, round(0.1 * len(values))) :]
    return sum(late) / len(late) if late else None
