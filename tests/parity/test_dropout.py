"""Dropout that TRL leaves on."""

from parity import reference
from parity.characters import text, tokenizer
from parity.rows import Row
from tiny_checkpoints import checkpoint
from tiny_rollouts import make_pairs


def test_attention_dropout_stays_on_in_trl(tmp_path, record):
    """Its `disable_dropout` reaches modules; Llama's attention dropout is a number.

    Every other test gives TRL a model in which both are off, as `policy.load_policy` makes it.
    """
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import DPOConfig, DPOTrainer

    (pair,) = make_pairs(1)
    row = {
        "prompt": text(pair.prompt_ids),
        "chosen": text(pair.chosen_ids),
        "rejected": text(pair.rejected_ids),
    }
    model = AutoModelForCausalLM.from_pretrained(checkpoint("llama"))
    assert model.config.attention_dropout == 0.1
    trainer = DPOTrainer(
        model=model,
        ref_model=reference.model(1),
        args=DPOConfig(
            **reference.arguments(
                tmp_path, per_device_train_batch_size=1, max_steps=2, learning_rate=0.0
            )
        ),
        train_dataset=Dataset.from_list([row, row]),
        processing_class=tokenizer(),
    )
    assert trainer.args.disable_dropout
    first, second = (step.computed.loss for step in reference.run(trainer))
    difference = abs(first - second) / abs(second)
    record(
        Row(
            method="DPO",
            compared="TRL's loss with its loss: same weights and batch, `attention_dropout` 0.1",
            value=difference,
            note="`disable_dropout` (on by default) misses the attention dropout of Llama and "
            "Qwen models, which is a number and no module; `models/policy` switches off both",
        )
    )
    assert difference > 1e-4
