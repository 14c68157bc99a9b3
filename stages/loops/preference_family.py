"""Preference learning by the loop that the loss needs: on pairs, or on single completions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transformers import PreTrainedModel

from stages.loops import epochs, kto, preference, ref_logprobs
from stages.loops.kto import judged_rows
from stages.loops.preference import KTO, PreferenceConfig, PreferencePreset
from stages.loops.step import Step
from stages.models.device import ComputeConfig
from stages.records.preferences import Preference


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
