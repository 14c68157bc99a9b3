"""Losses on preference pairs against TRL's `DPOTrainer`."""

import pytest
import torch
from parity import ours, reference
from parity.characters import text, tokenizer
from tiny_checkpoints import load
from tiny_rollouts import make_pairs

from stages.algorithms.losses.dpo import dpo_loss
from stages.loops.preference import sequence_logprobs

PAIRS = make_pairs(4)
BETA = 0.3


def trl_step(folder, **changes):
    """One step of the policy of seed 0 with the reference of seed 1."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    trainer = DPOTrainer(
        model=reference.model(0),
        ref_model=reference.model(1),
        args=DPOConfig(
            **reference.arguments(
                folder, per_device_train_batch_size=4, max_steps=1, beta=BETA, **changes
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


def our_step(step, loss):
    """`loss` of (chosen, rejected, chosen reference, rejected reference), mean over the pairs."""
    prompts = [pair.prompt_ids for pair in PAIRS for _ in range(2)]
    completions = [ids for pair in PAIRS for ids in (pair.chosen_ids, pair.rejected_ids)]
    batch = ours.one_batch(prompts, completions)

    def scores(model):
        summed = sequence_logprobs(model, batch)
        return summed[torch.tensor(batch.indices).argsort()].view(-1, 2).unbind(1)

    with torch.no_grad():
        ref = scores(load("llama", 1))
    return ours.computed(load("llama"), step.weights, lambda m: loss(*scores(m), *ref).mean())


def test_dpo(tmp_path, agree):
    step = trl_step(tmp_path)
    agree("DPO", "sigmoid", our_step(step, lambda *a: dpo_loss(*a, beta=BETA)[0]), step.computed)
