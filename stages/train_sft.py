"""Supervised fine-tuning on demonstrations.

    python -m stages train_sft <policy> --train sft --preset .. --from .. --on ..

Reads the folder `on` of demonstrations, or the successful episodes of a row of `episodes`, and the
policy `from`, or the base model; writes a policy of each seed. With `model.path` null the base
model is a small Llama with random weights. The loss is the mean of -log p over the completion
tokens of a step (Ouyang et al., "Training language models to follow instructions" (2022), step 1),
which in an episode are the assistant's tokens. Departure: every token of an optimizer step has the
same weight, in any micro-batch. With a `teacher` in the preset, the loss is the forward KL from the
policy that wrote the demonstrations (`algorithms/forward_kl`).
"""

from functools import partial
from pathlib import Path
from typing import Any

from pydantic import model_validator

from stages import rows, stage
from stages.loops import epochs, sft, training, work
from stages.loops.run import Run
from stages.loops.sft import SftConfig, SftPreset, Teacher
from stages.models import model_tokenizer, policy, row_policy, size
from stages.models.device import setup
from stages.models.policy import Policy
from stages.models.sharding import shard_model
from stages.records import lines
from stages.records.episodes import EPISODES, Episode
from stages.records.problems import NO_SOLUTIONS, TEACHER, Demonstration
from stages.seeding import derive_seed

FINAL = {"loss/nll": "final_loss", "loss/forward_kl": "final_forward_kl"}
"""Loss of a step -> its mean over the last twentieth of the steps, in metrics.json."""


class Config(training.TrainingConfig):
    """Keys of params.yaml that train_sft reads, and its preset."""

    sft: SftConfig
    preset: SftPreset

    @model_validator(mode="after")
    def _adapters_need_a_trained_model(self) -> "Config":
        if self.lora.rank and self.model.path is None:
            raise ValueError(
                "lora.rank is above 0 and model.path is null: adapters on random weights learn "
                "little. Set lora.rank to 0 or name a model."
            )
        return self


def main(*words: str) -> None:
    """Write `model/` and `training/` of the row's policy."""
    stage.run(train, words, Config, gpu=True, prepare=check_teacher)


def check_teacher(run: Run) -> None:
    """Raise a ValueError if the preset has a teacher, and the demonstrations none that fits."""
    row, preset = run.row, run.config.preset
    folders = [rows.seed_folder(row.source, seed) / TEACHER for seed in run.config.seeds]
    has_teacher = all(folder.is_dir() for folder in folders)
    sft.check_teacher(row.on, preset, has_teacher=has_teacher)
    if preset.teacher is not None:
        for seed, folder in zip(run.config.seeds, folders, strict=True):
            student = row_policy.load_row_tokenizer(row.policy, seed)
            of_teacher = model_tokenizer.load_tokenizer(folder)
            names = row.policy, f"of {row.on}"
            model_tokenizer.check_same_vocabulary(student, of_teacher, names)


def train(run: Run) -> dict[str, Any]:
    """Train the policy of one seed; returns its metrics."""
    config, row = run.config, run.row
    settings = config.preset.override(config.sft)
    device, seed = setup(config.compute), derive_seed(run.seed, "train_sft")
    tokenizer = row_policy.load_row_tokenizer(row.policy, run.seed)
    model = row_policy.load_row_policy(
        row.policy, run.seed, config.model, config.compute, device, weights_seed=seed
    )
    row_policy.add_adapters(model, config.lora, seed)
    examples = sft.choose_demonstrations(read_demonstrations(run.source), config.preset, seed)
    schedule = epochs.batches(len(examples), settings.num_epochs, settings.batch_size, seed)
    pad_id = model_tokenizer.pad_id(tokenizer)
    learner = shard_model(Policy(model, config.compute, pad_id))
    teacher = None
    if config.preset.teacher is not None:
        frozen = policy.load_policy(run.source / TEACHER, config.compute, device, trained=False)
        frozen = shard_model(Policy(frozen, config.compute, pad_id))
        teacher = Teacher(policy=frozen, loss=config.preset.teacher)
    state = run.resume()
    steps = sft.train(learner, examples, schedule, settings, state, teacher)
    history = run.record(steps, total=len(schedule))
    sizes = {"policy": size.measure_model(model)}
    if teacher is not None:
        sizes["teacher"] = size.measure_frozen(teacher.policy.model)
    metrics = {**work.summarise_training(history, sizes), "demonstrations": len(examples)}
    last = history[-max(1, len(history) // 20) :]
    for loss, name in FINAL.items():
        values = [step[loss] for step in last if loss in step]
        if values:  # there are none without a step
            metrics[name] = sum(values) / len(values)
    save = partial(policy.save_model, model, tokenizer, dtype=config.compute.dtype)
    run.write_policy(save)
    return metrics


def read_demonstrations(folder: Path) -> list[Demonstration]:
    """Demonstrations of a folder, or its successful episodes; a ValueError if there are none."""
    path, remedy = folder / EPISODES, "Play an environment whose episodes a policy can win"
    if path.exists():
        demonstrations = sft.select_successes(list(lines.read_lines(path, Episode)))
    else:
        path, remedy = folder / "demonstrations.jsonl", NO_SOLUTIONS
        demonstrations = list(lines.read_lines(path, Demonstration))
    if not demonstrations:
        raise ValueError(f"{path}: expected demonstrations to imitate, found none. {remedy}")
    return demonstrations
