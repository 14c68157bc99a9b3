"""A run of preference learning: by the loop that its loss needs, and in a few numbers at its end.

The numbers warn of likelihood displacement. A loss of margins is content when both completions
become less likely, the rejected one faster: probability then goes to completions of neither kind.
Razin et al., "Unintentional Unalignment: Likelihood Displacement in Direct Preference Optimization"
(2024), https://arxiv.org/abs/2410.08847
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedModel

from stages.loops import epochs, kto, preference, ref_logprobs, work
from stages.loops.preference import KTO, PreferenceConfig, PreferencePreset
from stages.loops.work import Step
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


class Learning(NamedTuple):
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
    """The steps, in an order by `seed`; `model`, at its start the reference, is changed by them."""
    loss = preset.loss
    if loss.kind == KTO:
        rows = kto.judged_rows(pairs)
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
    return Learning(len(schedule), steps, ref_logprobs.passes(wanted, compute))


def _schedule(
    lengths: Sequence[int], config: PreferenceConfig, token_budget: int | None, seed: int
) -> list[list[int]]:
    if token_budget is None:
        return epochs.batches(len(lengths), config.num_epochs, config.batch_size, seed)
    return epochs.batches_within(lengths, token_budget, config.batch_size, seed)


def summarise(history: Sequence[Mapping[str, int | float]]) -> dict[str, Any]:
    """The numbers of `metrics.json`, from the metrics of every step.

    `final` ones are means over the last tenth of the steps. Log-ratios are measured from the
    reference, where training starts, so at 0 nothing has changed.
    """
    ends = [late_mean(history, f"log_ratios/{side}") for side in ("chosen", "rejected")]
    return {
        **work.tokens(history),
        "final_margin_accuracy": late_mean(history, "margin/accuracy"),
        "final_chosen_log_ratio": ends[0],
        "final_rejected_log_ratio": ends[1],
        "both_logprobs_fell": all(end is not None and end <= -LEAST_FALL for end in ends),
    }


def late_mean(history: Sequence[Mapping[str, float]], name: str) -> float | None:
    """Mean of a metric over the last tenth of the steps that have it; None if none has."""
    values = [metrics[name] for metrics in history if name in metrics]
    late = values[-max(1, round(LATE_SHARE * len(values))) :]
    return sum(late) / len(late) if late else None
