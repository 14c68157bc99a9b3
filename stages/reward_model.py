"""Reward models from a policy, with their held-out accuracy: preference, outcome, process.

    python -m stages reward_preference <reward> --by preference --preset .. --from .. --on pairs/..
    python -m stages reward_outcome    <reward> --by outcome    --preset .. --from .. --on pools/..
    python -m stages reward_process    <reward> --by process    --preset .. --from .. --on steps/..

All write `reward.json`, and for each seed a model and its metrics on problems that it did not learn
from.

`preference`: a Bradley-Terry model of labelled pairs, an `AutoModelForSequenceClassification` with
one label, read at a completion's last token. Ouyang et al., "Training language models to follow
instructions" (2022), eq. 1. Departure: rewards are kept centred. `members` above 1 makes an
ensemble whose members differ in the head's initial weights and the order of the pairs (Coste et
al., "Reward Model Ensembles Help Mitigate Overoptimization" (2024)); `flip_percent` of the training
labels are made wrong, the same ones for each member.

`outcome`: a model in the same format, whose label is the logit of P(the final answer is right), of
the completions of a pool, which the answer checker labels. Cobbe et al., "Training Verifiers to
Solve Math Word Problems" (2021), section 4, https://arxiv.org/abs/2110.14168. Departures: one
prediction per completion, not one per token; no language-modelling loss beside it; right and wrong
weigh the same within each problem, so the model learns P(right) for equal priors
(`rewards/verifier_labels`).

`process`: a model of P(the solution is right so far) after each step. Learns from solutions with
step labels; training rows of a held-out problem or of a test set are refused. An
`AutoModelForTokenClassification` of two labels, read at a step token after each step, which its
config names. `aggregation.json` has the rule by which the scores of steps become one, chosen on the
held-out solutions. Lightman et al., "Let's Verify Step by Step" (2023); Wang et al.,
"Math-Shepherd" (2024). Departures: a new head, which starts at zero, in place of two words of the
vocabulary; nothing is truncated or left out in silence (`loops/process_reward`).
"""

from typing import Any

import torch
from pydantic import Field
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import stage
from stages.loops import epochs, process_reward, reward, training, work
from stages.loops.preference import make_pair_groups
from stages.loops.process_reward import ProcessRewardConfig
from stages.loops.reward import OutcomeConfig, RewardConfig
from stages.loops.run import Run
from stages.models import (
    model_tokenizer,
    policy,
    process_head,
    row_policy,
    scalar_head,
    size,
)
from stages.models.device import setup
from stages.models.process_head import ProcessHead
from stages.models.scalar_head import ScalarHead
from stages.models.sharding import shard_model
from stages.records import pools
from stages.records.preferences import read_pairs
from stages.records.steps import read_training_steps
from stages.report import reward_quality
from stages.report.evaluation_config import Bins, EvaluationConfig
from stages.rewards import pool_scores, reward_file, verifier_labels
from stages.rewards.reward_file import Aggregate
from stages.seeding import derive_seed


class RewardModelPreset(RewardConfig):
    """Training and test of a preference reward model."""

    members: int = Field(ge=1)
    """Number of reward models that score together."""
    aggregate: Aggregate
    """Aggregation of the members' scores, wherever they score."""
    flip_percent: int = Field(ge=0, le=100)
    """Per cent of training labels that are made wrong, to measure the effect of noise."""
    quality: Bins


class OutcomePreset(OutcomeConfig):
    """Training and test of an outcome reward model."""

    quality: Bins


class ProcessPreset(ProcessRewardConfig):
    """Training of a process reward model."""

    step_token: str = Field(min_length=1)
    """Special token of the tokenizer after each step, which nothing else uses; `auto`: one that is
    free (`process_head.step_token_id`)."""
    separator: str = Field(min_length=1)
    """Text that ends a step in the training rows, and by which sampled completions are split."""


class PreferenceTraining(training.TrainingConfig):
    """Keys of params.yaml that reward_preference reads, and its preset."""

    evaluation: EvaluationConfig
    preset: RewardModelPreset


class OutcomeTraining(training.TrainingConfig):
    """Keys of params.yaml that reward_outcome reads, and its preset."""

    evaluation: EvaluationConfig
    preset: OutcomePreset


class ProcessTraining(training.TrainingConfig):
    """Keys of params.yaml that reward_process reads, and its preset."""

    preset: ProcessPreset


CONFIGS = {
    "reward_preference": PreferenceTraining,
    "reward_outcome": OutcomeTraining,
    "reward_process": ProcessTraining,
}


def main(*words: str) -> None:
    """Write `reward.json`, and `model/` and `metrics.json` of each seed."""
    trainers = {
        "reward_preference": train_preference,
        "reward_outcome": train_outcome,
        "reward_process": train_process,
    }
    stage.run(trainers[words[0]], words, CONFIGS, gpu=True, prepare=write_reward_file)


def write_reward_file(run: Run) -> None:
    """Write `reward.json`: the kind of the model, and how an ensemble's scores become one."""
    aggregate = getattr(run.config.preset, "aggregate", reward_file.MEAN)
    kind: Any = run.row.by
    reward_file.write_reward(run.output, reward_file.model_reward_file(kind, aggregate))


def load_reward_tokenizer(run: Run) -> PreTrainedTokenizerBase:
    """The tokenizer of the row's policy, with a padding token that ends no completion."""
    tokenizer = row_policy.load_row_tokenizer(run.row.policy, run.seed)
    model_tokenizer.set_separate_pad(tokenizer)
    return tokenizer


def init_scalar_head(run: Run, seed: int, pad_id: int, head_seed: int | None = None) -> ScalarHead:
    """The row's policy of this seed under a new scalar head, ready to be trained."""
    config, name = run.config, run.row.policy
    model = scalar_head.init_scalar_model(
        row_policy.locate_policy_folder(name, run.seed, config.model),
        pad_id,
        config.compute,
        setup(config.compute),
        head_seed=head_seed,
    )
    row_policy.add_adapters(model, config.lora, seed)
    return shard_model(ScalarHead(model, config.compute, pad_id))


def train_preference(run: Run) -> dict[str, Any]:
    """Train the reward model of one seed, or all members of its ensemble; returns the metrics."""
    preset, source = run.config.preset, run.source
    setup(run.config.compute)
    pairs = verifier_labels.flip_labels(
        read_pairs(source, "train"),
        preset.flip_percent,
        derive_seed(run.seed, "flip"),
    )
    heldout = read_pairs(source, "heldout")
    groups = make_pair_groups(heldout, range(len(heldout)))
    tokenizer = load_reward_tokenizer(run)
    history: list[dict[str, int | float]] = []
    scores, sizes = [], []
    for member in range(preset.members):
        seed = derive_seed(run.seed, "reward_preference", member)
        pad_id = model_tokenizer.pad_id(tokenizer)
        model = init_scalar_head(run, seed, pad_id, derive_seed(seed, "head"))
        schedule = epochs.batches(len(pairs), preset.num_epochs, preset.batch_size, seed)
        state = run.resume(f"member {member}")
        steps = reward.train(model, pairs, schedule, preset, state)
        after = len(schedule) * (preset.members - 1 - member)
        history += run.record(steps, total=len(schedule), after=after)
        scores.append(reward.score(model, groups))
        sizes.append(size.measure_model(model.model))
        folder = run.output / "model"
        policy.save_model(
            model.model, tokenizer, folder / str(member) if preset.members > 1 else folder
        )
    aggregated = preset.aggregate(scores=torch.stack(scores)).view(len(heldout), 2)
    quality = run.config.evaluation.quality(preset.quality)
    seed = derive_seed(run.seed, "reward_preference", "bootstrap")
    return {
        **work.summarise_training(history, {"reward": sizes[-1]}),
        "pairs": len(pairs),
        "heldout": reward_quality.evaluate_pairs(heldout, aggregated.numpy(), quality, seed),
    }


def train_outcome(run: Run) -> dict[str, Any]:
    """Train the outcome reward model of one seed; returns its metrics."""
    config, row, preset = run.config, run.row, run.config.preset
    setup(config.compute)
    seed = derive_seed(run.seed, "reward_outcome")
    pool = {side: pools.read_pools(row.source, run.seed, side) for side in pools.SIDES}
    checked = {
        side: [verifier_labels.check_pool(*problem) for problem in tracked]
        for side, tracked in run.track_parts(pool, "problems")
    }
    problems = verifier_labels.training_outcomes(
        checked["train"],
        max_per_problem=preset.max_per_problem,
        one_class_weight=preset.one_class_weight,
        seed=derive_seed(seed, "draw"),
    )
    heldout = verifier_labels.heldout_outcomes(checked["heldout"])
    tokenizer = load_reward_tokenizer(run)
    model = init_scalar_head(run, seed, model_tokenizer.pad_id(tokenizer))
    schedule = epochs.batches(len(problems), preset.num_epochs, preset.batch_size, seed)
    steps = reward.train_outcomes(model, problems, schedule, preset, run.resume())
    history = run.record(steps, total=len(schedule))
    groups = reward.make_problem_groups(heldout, config.compute.row_tokens)
    scores = reward.score(model, groups)
    policy.save_model(model.model, tokenizer, run.output / "model")
    return {
        **work.summarise_training(history, {"reward": size.measure_model(model.model)}),
        "problems": len(problems),
        "completions": sum(map(len, problems)),
        "heldout": reward_quality.evaluate_outcomes(
            [outcome for problem in heldout for outcome in problem],
            scores.numpy(),
            config.evaluation.quality(preset.quality),
            derive_seed(seed, "bootstrap"),
        ),
    }


def train_process(run: Run) -> dict[str, Any]:
    """Train the process reward model of one seed; returns its metrics."""
    config, row, source, preset = run.config, run.row, run.source, run.config.preset
    labelled, heldout = read_training_steps(source / "train.jsonl", source / "heldout.jsonl")
    device, seed = setup(config.compute), derive_seed(run.seed, "reward_process")
    tokenizer = row_policy.load_row_tokenizer(row.policy, run.seed)
    pretrained = process_head.init_process_model(
        row_policy.locate_policy_folder(row.policy, run.seed, config.model),
        process_head.step_token_id(tokenizer, preset.step_token),
        config.compute,
        device,
        separator=preset.separator,
    )
    row_policy.add_adapters(pretrained, config.lora, seed)
    pad_id = model_tokenizer.pad_id(tokenizer)
    model = shard_model(ProcessHead(pretrained, config.compute, pad_id))
    schedule = process_reward.schedule_steps(labelled, preset, seed)
    steps = process_reward.train(model, labelled, schedule, preset, run.resume())
    history = run.record(steps, total=len(schedule))
    scores = process_head.score_steps(model, process_reward.list_solutions(heldout))
    choice, accuracy = pool_scores.choose_aggregation(heldout, scores)
    policy.save_model(pretrained, tokenizer, run.output / "model")
    choice.write(run.output)
    return {
        **work.summarise_training(history, {"reward": size.measure_model(pretrained)}),
        "solutions": len(labelled),
        "heldout": process_reward.measure_quality(heldout, scores, preset.targets),
        "accuracy": accuracy,
    }
