r"""A process reward model from a policy: is the solution still right after each of its steps?

    python -m stages.train_process_reward <name> <start> <steps> <heldout>

Reads solutions with step labels for training and, of other problems, for testing: folders under
data/ with `steps.jsonl`, of `label_steps` or `import_steps`; training rows of a held-out problem
or of a test set are refused. Writes an `AutoModelForTokenClassification` of two labels, read at
a step token after each step, which its config names. Lightman et al., "Let's Verify Step by Step"
(2023); Wang et al., "Math-Shepherd" (2024). Departures: a new head in place of two words of the
vocabulary, which starts at zero; nothing is cut or left out in silence (`loops/process_reward`).
"""

from pathlib import Path

from pydantic import Field

from stages import params
from stages.loops import process_reward, process_summary, step_targets, work
from stages.loops.process_reward import ProcessRewardConfig
from stages.models import lora, model_tokenizer, policy, process_head, size
from stages.models.device import ComputeConfig, setup
from stages.models.lora import LoraConfig
from stages.params import Params
from stages.records.steps import read_training_steps
from stages.runtime import outputs, process, progress, runs
from stages.seeding import derive

DATA = Path("data")
OUTPUT = DATA / "train_process_reward"


class TrainProcessReward(ProcessRewardConfig):
    """Section of params.yaml."""

    step_token: str = Field(min_length=1)
    """A special token of the tokenizer that nothing else uses; follows each step."""
    separator: str = Field(min_length=1)
    """What ended the steps of the training rows; sampled completions are split by it."""


class Config(Params):
    """What train_process_reward reads of params.yaml."""

    seed: int
    compute: ComputeConfig
    lora: LoraConfig
    train_process_reward: TrainProcessReward


def main(name: str, start: str, steps_of: str, heldout_of: str) -> None:
    """Write `process_model/` and `metrics.json`."""
    output = OUTPUT / name
    with runs.start(f"train_process_reward@{name}", output, gpu=True) as run:
        config = params.load(Config)
        settings, compute = config.train_process_reward, config.compute
        folders = (DATA / steps_of, DATA / heldout_of)
        rows, heldout = read_training_steps(*(folder / "steps.jsonl" for folder in folders))
        device = setup(compute)
        seed = derive(config.seed, "train_process_reward")
        tokenizer = model_tokenizer.load(DATA / start)
        pad_id = model_tokenizer.pad_id(tokenizer)
        step_id = process_head.step_token_id(tokenizer, settings.step_token)
        model = process_head.from_policy(
            DATA / start, step_id, compute, device, separator=settings.separator
        )
        merged = lora.attach(model, config.lora, seed)
        schedule = process_reward.schedule(rows, settings, seed)
        steps = process_reward.train(model, rows, schedule, settings, compute, pad_id)
        history: list[dict[str, int | float]] = []
        for step in progress.track(
            steps, total=len(schedule), label=f"train_process_reward {name}"
        ):
            run.log(step.index, step.metrics)
            history.append(step.metrics)
        scores = process_head.step_scores(model, step_targets.solutions(heldout), compute, pad_id)
        metrics = {
            "generated_tokens": 0,
            "trained_tokens": sum(int(metrics["tokens/trained"]) for metrics in history),
            "work": work.summary(history, {"reward": size.measure(model)}),
            "solutions": len(rows),
            "heldout_solutions": len(heldout),
            "heldout": process_summary.summary(heldout, scores, settings.targets),
            "lowest_is_last": process_summary.lowest_is_last(scores),
        }
        with outputs.replace(output / "process_model") as temporary:
            policy.save(merged(), tokenizer, temporary)
        outputs.write_json(output / "metrics.json", metrics)


if __name__ == "__main__":
    process.run(main)
