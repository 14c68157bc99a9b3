"""The same preference pairs for TRL's trainers and for our losses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from parity import ours, reference
from parity.characters import text, tokenizer
from parity.reference import Computed, ReferenceStep
from tiny_checkpoints import load
from tiny_rollouts import make_pairs
from torch import Tensor
from transformers import PreTrainedModel

from stages.loops.choices.pair_logprobs import PairLogprobs
from stages.loops.ref_logprobs import sequence_logprobs

PAIRS = make_pairs(4)


def trl_step(
    trainer_class: Any, config_class: Any, folder: Path, *, with_reference: bool, **changes: Any
) -> ReferenceStep:
    """One step of the policy of seed 0, with the reference of seed 1 where there is one."""
    from datasets import Dataset

    trainer = trainer_class(
        model=reference.model(0),
        **({"ref_model": reference.model(1)} if with_reference else {}),
        args=config_class(
            **reference.arguments(
                folder, **({"per_device_train_batch_size": 4, "max_steps": 1} | changes)
            )
        ),
        train_dataset=Dataset.from_list(
            [
                {
                    "prompt": text(pair.prompt_ids),
                    "chosen": text(pair.chosen_ids),
                    "rejected": text(pair.rejected_ids),
                }
                for pair in PAIRS
            ]
        ),
        processing_class=tokenizer(),
    )
    (step,) = reference.run(trainer)
    return step


def pair_logprobs(policy: PreTrainedModel, frozen: PreTrainedModel) -> PairLogprobs:
    """Of every pair, under the policy and the reference."""
    prompts = [pair.prompt_ids for pair in PAIRS for _ in range(2)]
    completions = [ids for pair in PAIRS for ids in (pair.chosen_ids, pair.rejected_ids)]
    batch = ours.one_batch(prompts, completions)

    def columns(values: Tensor) -> tuple[Tensor, Tensor]:
        chosen, rejected = values[torch.tensor(batch.indices).argsort()].view(-1, 2).unbind(1)
        return chosen, rejected

    chosen, rejected = columns(sequence_logprobs(policy, batch))
    with torch.no_grad():
        chosen_ref, rejected_ref = columns(sequence_logprobs(frozen, batch))
    chosen_lengths, rejected_lengths = columns(batch.mask.sum(1))
    return PairLogprobs(
        chosen=chosen,
        rejected=rejected,
        chosen_ref=chosen_ref,
        rejected_ref=rejected_ref,
        chosen_lengths=chosen_lengths,
        rejected_lengths=rejected_lengths,
    )


def our_step(step: ReferenceStep, loss: Callable[[PairLogprobs], Any]) -> Computed:
    """The mean over the pairs of a loss of (losses, margins), at the weights of TRL's step."""
    frozen = load("llama", 1)
    return ours.computed(
        load("llama"), step.weights, lambda policy: loss(pair_logprobs(policy, frozen))[0].mean()
    )
