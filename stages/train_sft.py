"""Supervised fine-tuning on demonstrations.

    python -m stages.train_sft <name> <preset> <start> <demonstrations>

Reads a folder's demonstrations and the model `start`, a policy or the base model; writes a
policy. With `model.path` null the base model is a small Llama with random weights. The loss is the
mean - log p over the completion tokens of a step (Ouyang et al., "Training language
models to follow instructions" (2022), step 1). Departure: every token of an optimizer
step weighs the same, whatever its micro-batch.
"""

from pathlib import Path

from pydantic import model_validator

from stages import params
from stages.loops import epochs, sft, work
from stages.loops.sft import SftConfig
from stages.models import lora, model_tokenizer, policy, size
from stages.models import start as models_start
from stages.models.config import ModelConfig
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records import lines
from stages.records.demonstration import Demonstration
from stages.runtime import outputs, process, progress, runs
from stages.seeding import derive

TABLES = ("sft",)
DATA = Path("data")
OUTPUT = DATA / "train_sft"


class Config(Params):
    """What train_sft reads of params.yaml and presets.yaml."""

    seed: int
    compute: ComputeConfig
    model: ModelConfig
    lora: LoraConfig
    sft: SftConfig

    @model_validator(mode="after")
    def _adapters_need_a_trained_model(self) -> "Config":
        if self.lora.rank and self.model.path is None:
            raise ValueError(
                "lora.rank is above 0 and model.path is null: adapters on random weights learn "
                "little. Set lora.rank to 0 or name a model."
            )
        return self


def main(name: str, preset: str, start: str, demonstrations: str) -> None:
    """Write `policy/` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"train_sft@{name}", output, gpu=True) as run:
        config = params.load(Config, pick={"sft": preset})
        device = setup(config.compute)
        seed = derive(config.seed, "train_sft")
        tokenizer = models_start.tokenizer(start)
        pad_id = model_tokenizer.pad_id(tokenizer)
        model = models_start.load(start, config.model, config.compute, device, seed=seed)
        merged = lora.attach(model, config.lora, seed)
        path = DATA / demonstrations / "demonstrations.jsonl"
        rows = sft.choose(list(lines.read(path, Demonstration)), config.sft, seed)
        schedule = epochs.batches(len(rows), config.sft.num_epochs, config.sft.batch_size, seed)
        steps = sft.train(model, rows, schedule, config.sft, config.compute, pad_id)
        history: list[dict[str, int | float]] = []
        for step in progress.track(steps, total=len(schedule), label=f"train_sft {name}"):
            run.log(step.index, step.metrics)
            history.append(step.metrics)
        last = [metrics["loss/nll"] for metrics in history[-max(1, len(history) // 20) :]]
        metrics = {
            "generated_tokens": 0,
            "trained_tokens": sum(int(metrics["tokens/trained"]) for metrics in history),
            "work": work.summary(history, {"policy": size.measure(model)}),
            "demonstrations": len(rows),
            "final_loss": sum(last) / len(last),
        }
        with outputs.replace(output / "policy") as temporary:
            policy.save(merged(), tokenizer, temporary)
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
