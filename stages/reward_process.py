r"""A process reward model from a policy: is the solution still right after each of its steps?

    python -m stages.reward_process <reward> --by process --preset .. --from .. --on steps/<steps>

Reads solutions with step labels to learn from and, of other problems, to test on; training rows of
a held-out problem or of a test set are refused. Writes for each seed an
`AutoModelForTokenClassification` of two labels, read at a step token after each step, which its
config names, and `aggregation.json`: how the scores of steps become one, chosen on the held-out
solutions. Lightman et al., "Let's Verify Step by Step" (2023); Wang et al., "Math-Shepherd" (2024).
Departures: a new head in place of two words of the vocabulary, which starts at zero; nothing is cut
or left out in silence (`loops/process_reward`).
"""

from typing import Any

from pydantic import Field

from stages import stage
from stages.loops import process_reward, training, work
from stages.loops.process_reward import ProcessRewardConfig
from stages.loops.run import Run
from stages.models import model_tokenizer, policy, process_head, row_policy, size
from stages.models.device import setup
from stages.models.process_head import ProcessHead
from stages.models.sharding import shard_model
from stages.records.steps import read_training_steps
from stages.rewards import pool_scores, reward_file
from stages.runtime import process
from stages.seeding import derive_seed


class ProcessPreset(ProcessRewardConfig):
    """How a process model is trained."""

    step_token: str = Field(min_length=1)
    """A special token of the tokenizer that nothing else uses, follows each step; `auto`: one that
    is free (`process_head.step_token_id`)."""
    separator: str = Field(min_length=1)
    """What ended the steps of the training rows; sampled completions are split by it."""


class Config(training.TrainingConfig):
    """What reward_process reads of params.yaml, and its preset."""

    preset: ProcessPreset


def main(*words: str) -> None:
    """Write `reward.json`, and `model/`, `aggregation.json` and `metrics.json` of each seed."""
    stage.run(train, "reward", words, Config, gpu=True, prepare=describe)


def describe(run: Run) -> None:
    """Write `reward.json`."""
    reward_file.write(run.output, reward_file.of_model("process"))


def train(run: Run) -> dict[str, Any]:
    """The process model of one seed."""
    config, row = run.config, run.row
    preset, compute = config.preset, config.compute
    source = run.source
    labelled, heldout = read_training_steps(source / "train.jsonl", source / "heldout.jsonl")
    device, seed = setup(compute), derive_seed(run.seed, "reward_process")
    tokenizer = row_policy.load_row_tokenizer(row.policy, run.seed)
    model = process_head.init_process_model(
        row_policy.locate_policy_folder(row.policy, run.seed, config.model),
        process_head.step_token_id(tokenizer, preset.step_token),
        compute,
        device,
        separator=preset.separator,
    )
    row_policy.add_adapters(model, config.lora, seed)
    learner = shard_model(ProcessHead(model, compute, model_tokenizer.pad_id(tokenizer)))
    schedule = process_reward.schedule(labelled, preset, seed)
    state = run.resume()
    steps = process_reward.train(learner, labelled, schedule, preset, state)
    history = run.record(steps, total=len(schedule))
    scores = process_head.score_steps(learner, process_reward.solutions(heldout))
    choice, accuracy = pool_scores.choose_aggregation(heldout, scores)
    policy.save_model(model, tokenizer, run.output / "model")
    choice.write(run.output)
    return {
        **work.learned(history, {"reward": size.measure_model(model)}),
        "solutions": len(labelled),
        "heldout": process_reward.summary(heldout, scores, preset.targets),
        "accuracy": accuracy,
    }


if __name__ == "__main__":
    process.run(main)
