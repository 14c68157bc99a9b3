"""Supervised fine-tuning: the policy that every other method starts from.

Reads the demonstrations and the tokenizer; writes a policy. With `model.path` null a
small Llama is trained from scratch, else that checkpoint is fine-tuned. The loss is the
mean - log p over the completion tokens of a step (Ouyang et al., "Training language
models to follow instructions" (2022), step 1). Departure: every token of an optimizer
step weighs the same, whatever its micro-batch.
"""

import json
from pathlib import Path

from pydantic import model_validator

from stages import params
from stages.loops import epochs, sft
from stages.loops.sft import SftConfig
from stages.models import lora, model_tokenizer, policy, tiny
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines
from stages.records.demonstration import Demonstration
from stages.runtime import outputs, progress, runs
from stages.seeding import derive

DEMONSTRATIONS = Path("data/prepare_data/demonstrations.jsonl")
TOKENIZER = Path("data/prepare_data/tokenizer")
OUTPUT = Path("data/train_sft")


class Config(Params):
    """What train_sft reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    model: ModelConfig
    lora: LoraConfig
    train_sft: SftConfig

    @model_validator(mode="after")
    def _adapters_need_a_trained_model(self) -> "Config":
        if self.lora.rank and self.model.path is None:
            raise ValueError(
                "lora.rank is above 0 and model.path is null: adapters on random weights learn "
                "little. Set lora.rank to 0 or name a model."
            )
        return self


def main() -> None:
    """Write `policy/` and `metrics.json`."""
    with runs.start("train_sft", OUTPUT, gpu=True) as run:
        config = params.load(Config)
        device = setup(config.compute)
        seed = derive(config.seed, "train_sft")
        tokenizer = model_tokenizer.load(TOKENIZER)
        pad_id = model_tokenizer.pad_id(tokenizer)
        if config.model.path is None:
            model = tiny.build(config.model.tiny, tokenizer, seed)
            model = policy.prepare(model, config.compute, device)
        else:
            model = policy.load(config.model.path, config.compute, device, config.model.revision)
        merged = lora.attach(model, config.lora, seed)
        rows = list(lines.read(DEMONSTRATIONS, Demonstration))
        schedule = epochs.batches(
            len(rows), config.train_sft.num_epochs, config.train_sft.batch_size, seed
        )
        steps = sft.train(model, rows, schedule, config.train_sft, config.compute, pad_id)
        trained_tokens, losses = 0, []
        for step in progress.track(steps, total=len(schedule), label="train_sft"):
            run.log(step.index, step.metrics)
            trained_tokens += int(step.metrics["tokens/trained"])
            losses.append(step.metrics["loss/nll"])
        last = losses[-max(1, len(losses) // 20) :]
        metrics = {
            "generated_tokens": 0,
            "trained_tokens": trained_tokens,
            "final_loss": sum(last) / len(last),
        }
        with outputs.replace(OUTPUT / "policy") as temporary:
            policy.save(merged(), tokenizer, temporary)
        with outputs.replace(OUTPUT / "metrics.json") as temporary:
            temporary.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
