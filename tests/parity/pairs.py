"""The same preference pairs for TRL's trainers and for our losses."""

from pathlib import Path
from typing import Any

import pytest
from parity import ours, reference
from parity.characters import text, tokenizer
from parity.reference import Computed, ReferenceStep
from tiny_checkpoints import CPU, PAD, compute, load
from tiny_rollouts import OPTIM, make_pairs
from torch import Tensor

from stages.loops import preference
from stages.loops.preference import PreferencePreset, make_pair_groups
from stages.loops.ref_logprobs import sequence_logprobs_no_grad
from stages.models.batch import Batch, micro_batches
from stages.models.policy import Policy
from stages.optim import OptimConfig

PAIRS = make_pairs(4)
GROUPS = make_pair_groups(PAIRS, range(len(PAIRS)))


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


def one_batch() -> tuple[Batch, Tensor]:
    """Every pair in one micro-batch, and what the reference says of them."""
    (batch,) = micro_batches(GROUPS, compute(), PAD, CPU)
    return batch, sequence_logprobs_no_grad(Policy(load("llama", 1), compute(), PAD), GROUPS).view(
        -1, 2
    )


def our_step(loss: PreferencePreset, monkeypatch: pytest.MonkeyPatch) -> Computed:
    """One step of our loop, from the same weights, with the same reference."""
    model = load("llama", 0)
    seen = ours.watch(monkeypatch, preference, model)
    config = preference.PreferenceConfig(
        num_epochs=1, batch_size=len(PAIRS), num_checkpoints=0, optim=OptimConfig(**OPTIM)
    )
    _, ref = one_batch()
    schedule = [range(len(PAIRS))]
    (step,) = preference.train(Policy(model, compute(), PAD), PAIRS, ref, schedule, loss, config)
    return Computed(loss=step.metrics["loss/preference"], gradients=seen[0])
