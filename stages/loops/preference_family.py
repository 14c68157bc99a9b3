"""Preference learning by the loop that the loss needs: on pairs, or on single completions."""

from collections.abc import Iterator

from transformers import PreTrainedModel

from stages.loops import epochs, kto, preference, stored_logprobs
from stages.loops.choices.preference_loss import KtoLoss, PreferenceLoss
from stages.loops.judged_rows import judged_rows
from stages.loops.preference import PreferenceConfig
from stages.loops.step import Step
from stages.models.device import ComputeConfig
from stages.records.preferences import Preference
from stages.records.ref_logprob import RefLogprob


def learn(
    model: PreTrainedModel,
    pairs: list[Preference],
    stored: Iterator[RefLogprob],
    loss: PreferenceLoss,
    config: PreferenceConfig,
    token_budget: int | None,
    compute: ComputeConfig,
    seed: int,
    pad_id: int,
) -> tuple[int, Iterator[Step]]:
    """The number of steps and the steps; `model` is changed in place.

    Args:
        model: the policy, which at its start is the reference.
        pairs: what is learned from.
        stored: the reference's log-probs of their completions.
        loss: the method.
        config: sizes and rates.
        token_budget: tokens to train on, in place of `num_epochs`; the step that reaches it is the
            last.
        compute, pad_id: see `micro_batches`.
        seed: of the order.
    """
    match loss:
        case KtoLoss():
            rows = judged_rows(pairs)
            lengths = [len(row.completion_ids) for row in rows]
            schedule = _schedule(lengths, config, token_budget, seed)
            known = kto.reference(model, rows, stored, schedule, compute, pad_id)
            steps = kto.train(model, rows, known, schedule, loss, config, compute, pad_id)
        case _:
            lengths = [len(pair.chosen_ids) + len(pair.rejected_ids) for pair in pairs]
            schedule = _schedule(lengths, config, token_budget, seed)
            ref = stored_logprobs.of_pairs(pairs, stored)
            steps = preference.train(model, pairs, ref, schedule, loss, config, compute, pad_id)
    return len(schedule), steps


def _schedule(
    lengths: list[int], config: PreferenceConfig, token_budget: int | None, seed: int
) -> list[list[int]]:
    if token_budget is None:
        return epochs.batches(len(lengths), config.num_epochs, config.batch_size, seed)
    return epochs.batches_within(lengths, token_budget, config.batch_size, seed)
