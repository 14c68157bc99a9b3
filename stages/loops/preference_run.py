"""A run of preference learning: by the loop that its loss needs, and in a few numbers at its end.

The numbers warn of likelihood displacement. A loss of margins is content when both completions
become less likely, the rejected one faster: probability then goes to completions of neither kind.
Razin et al., "Unintentional Unalignment: Likelihood Displacement in Direct Preference Optimization"
(2024), https://arxiv.org/abs/2410.08847
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from stages.loops import epochs, kto, preference, ref_logprobs
from stages.loops.kto import judged_rows
from stages.loops.preference import KTO, PreferenceConfig, PreferencePreset
from stages.loops.step import Step
from stages.models.device import ComputeConfig
from stages.records.preferences import Preference

BOTH_FELL = (
    "the chosen completions became less likely than under the reference, together with the "
    "rejected ones: mean log-ratios %(final_chosen_log_ratio).2f and "
    "%(final_rejected_log_ratio).2f over the last tenth of the steps. Look at the greedy "
    "accuracy; lower the learning rate or num_epochs, or take a loss with a likelihood term "
    "(orpo, cpo)."
)
"""For a logger, with what `summarise` returned, where `both_logprobs_fell`."""
LEAST_FALL = 0.1
"""Nats a completion must lose to have fallen: below that it is rounding and chance."""
LATE_SHARE = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Learning:
    """A run of preference learning, its reference's log-probs computed, no step taken yet."""

    num_steps: int
    steps: Iterator[Step]
    reference_work: dict[str, int]
    """The passes of the policy as it starts, as metrics (see `work`)."""


def learn(
    model: PreTrainedModel,
    pairs: list[Preference],
    preset: PreferencePreset,
    config: PreferenceConfig,
    compute: ComputeConfig,
    seed: int,
    pad_id: int,
) -> Learning:
    """The steps; `model`, which at its start is the reference, is changed in place by them.

    Args:
        model: the policy.
        pairs: what is learned from.
        preset: the method.
        config: sizes and rates.
        compute, pad_id: see `micro_batches`.
        seed: of the order.
    """
    loss = preset.loss
    if loss.kind == KTO:
        rows = judged_rows(pairs)
        wanted = ref_logprobs.of_judged(rows)
        lengths = [len(row.completion_ids) for row in rows]
        schedule = _schedule(lengths, config, preset.token_budget, seed)
        ref = kto.reference(model, rows, schedule, compute, pad_id)
        steps = kto.train(model, rows, ref, schedule, loss, config, compute, pad_id)
    else:
        wanted = ref_logprobs.of_pairs(pairs)
        lengths = [len(pair.chosen_ids) + len(pair.rejected_ids) for pair in pairs]
        schedule = _schedule(lengths, config, preset.token_budget, seed)
        ref = ref_logprobs.compute(model, wanted, compute, pad_id).view(-1, 2)
        steps = preference.train(model, pairs, ref, schedule, loss, config, compute, pad_id)
    return Learning(
        num_steps=len(schedule),
        steps=steps,
        reference_work=ref_logprobs.passes(wanted, compute),
    )


def _schedule(
    lengths: Sequence[int], config: PreferenceConfig, token_budget: int | None, seed: int
) -> list[list[int]]:
    if token_budget is None:
        return epochs.batches(len(lengths), config.num_epochs, config.batch_size, seed)
    return epochs.batches_within(lengths, token_budget, config.batch_size, seed)


def summarise(history: Sequence[Mapping[str, int | float]]) -> dict[str, Any]:
    """The numbers of `metrics.json`; `final` ones are means over the last tenth of the steps.

    Args:
        history: the metrics of every step of `preference.train` or `kto.train`.
    """
    return {
        "generated_tokens": 0,
        "trained_tokens": sum(int(metrics["tokens/trained"]) for metrics in history),
        "final_margin_accuracy": late_mean(history, "margin/accuracy"),
        "final_chosen_log_ratio": late_mean(history, "log_ratios/chosen"),
        "final_rejected_log_ratio": late_mean(history, "log_ratios/rejected"),
        "both_logprobs_fell": both_fell(history),
    }


def late_mean(history: Sequence[Mapping[str, float]], name: str) -> float | None:
    """Mean of a metric over the last tenth of the steps that have it; None if none has."""
    values = [metrics[name] for metrics in history if name in metrics]
    late = values[-max(1, round(LATE_SHARE * len(values))) :]
    return sum(late) / len(late) if late else None


def both_fell(history: Sequence[Mapping[str, float]]) -> bool:
    """Whether both log-ratios are at least `LEAST_FALL` below 0 in the last tenth of the steps.

    A log-ratio is measured from the reference, where training starts, so at 0 nothing has
    changed.

    Args:
        history: the metrics of every step, with `log_ratios/chosen` and `log_ratios/rejected`.
    """
    ends = [late_mean(history, f"log_ratios/{side}") for side in ("chosen", "rejected")]
    return all(end is not None and end <= -LEAST_FALL for end in ends)
