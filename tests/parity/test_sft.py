"""Supervised fine-tuning against TRL's `SFTTrainer`."""

import pytest
from parity import ours, reference
from parity.characters import text, tokenizer
from parity.reference import Computed
from tiny_checkpoints import PAD, compute, load
from tiny_rollouts import OPTIM, make_demonstrations

from stages.loops import sft
from stages.models.policy import Policy
from stages.optim import OptimConfig

ROWS = make_demonstrations(4)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_one_step_of_sft(micro_batches, tmp_path, monkeypatch, agree):
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    trainer = SFTTrainer(
        model=reference.model(),
        args=SFTConfig(
            **reference.arguments(
                tmp_path,
                per_device_train_batch_size=4 // micro_batches,
                gradient_accumulation_steps=micro_batches,
                max_steps=1,
            )
        ),
        train_dataset=Dataset.from_list(
            [{"prompt": text(r.prompt_ids), "completion": text(r.completion_ids)} for r in ROWS]
        ),
        processing_class=tokenizer(),
    )
    (step,) = reference.run(trainer)

    model = load("llama")
    seen = ours.watch(monkeypatch, sft, model)
    config = sft.SftConfig(num_epochs=1, batch_size=4, optim=OptimConfig(**OPTIM))
    (result,) = sft.train(Policy(model, compute(), PAD), ROWS, [range(4)], config)
    agree(
        "SFT",
        "`loops/sft.train`, one step" + (", 2 micro-batches" if micro_batches == 2 else ""),
        Computed(loss=result.metrics["loss/nll"], gradients=seen[0]),
        step.computed,
    )
    assert sum(int((b["labels"] != -100).sum()) for b in step.batches) == sum(
        len(r.completion_ids) for r in ROWS
    )
