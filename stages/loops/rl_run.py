"""What the stages of PPO and of the group methods share: before their first step, and after."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import rows
from stages.loops import entry_reward, epochs, training, work
from stages.loops.epochs import Schedule
from stages.loops.rollouts import Actor, Task
from stages.loops.step import Step, totals
from stages.models import model_tokenizer, policy, size
from stages.models import start as models_start
from stages.models.device import ComputeConfig, setup
from stages.models.size import Size
from stages.models.start import Merge, ModelConfig
from stages.records import lines
from stages.records.problems import Prompt
from stages.rewards import judged, reward_file
from stages.rows import Row
from stages.runtime.seeds import SeedRun
from stages.sampler import Sampler


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """The row's policy, to be trained, a frozen copy of it as the reference, and the task."""

    actor: Actor
    task: Task
    tokenizer: PreTrainedTokenizerBase


def begin(
    row: Row,
    seed: int,
    model: ModelConfig,
    compute: ComputeConfig,
    sampler_of: Callable[..., Sampler],
    max_new_tokens: int,
) -> Start:
    """Load all that the row names.

    Args:
        row: names policy and reward.
        seed: of both.
        model: says what the base model is.
        compute: precision and device.
        sampler_of: policy, tokenizer and `max_batch` -> what samples from the policy as it is.
        max_new_tokens: where completions are cut.
    """
    device, tokenizer = setup(compute), models_start.tokenizer(row.policy, seed)
    trained = models_start.load(row.policy, seed, model, compute, device)
    actor = Actor(
        policy=trained,
        reference=models_start.load(row.policy, seed, model, compute, device),
        sampler=sampler_of(trained, tokenizer, max_batch=compute.max_batch),
        decode=policy.decoder(tokenizer),
        pad_id=model_tokenizer.pad_id(tokenizer),
    )
    task = Task(
        prompts=list(lines.read(rows.PROMPTS / "train.jsonl", Prompt)),
        reward=entry_reward.load(row.source, seed, actor, compute, max_new_tokens),
        correct=judged.correct,
    )
    return Start(actor=actor, task=task, tokenizer=tokenizer)


def finish(
    start: Start,
    steps: Iterator[Step],
    schedule: Schedule,
    num_checkpoints: int,
    merged: Merge,
    row: Row,
    folders: training.Folders,
    run: SeedRun,
    value: nn.Module | None = None,
) -> dict[str, Any]:
    """Take all steps and write the policy, every rollout and the metrics, which are returned."""
    total = epochs.length(schedule)
    history = training.take(steps, total, num_checkpoints, merged, start.tokenizer, folders, run)
    models = sizes(start.actor, row, run.seed, value)
    done = work.summary((step.metrics for step in history), models)
    metrics = {**totals(history), "work": done}
    rollouts = (rollout for step in history for rollout in step.rows)
    training.write(folders, run.seed, merged(), start.tokenizer, history, metrics, rollouts)
    return metrics


def sizes(actor: Actor, row: Row, seed: int, value: nn.Module | None) -> dict[str, Size]:
    """Policy, reference, value model, and the model that the reward asks; those that there are.

    Of an ensemble the members are counted together; of a value model with a trunk shared with the
    policy, its head alone is its own.
    """
    found = {"policy": size.measure(actor.policy)}
    if actor.reference is not None:
        found["reference"] = size.frozen(actor.reference)
    if value is not None:
        found["value"] = size.measure(value)
    if reward_file.read(row.source).model is not None:
        found["scorer"] = size.of_scorer(reward_file.model(row.source, seed))
    return found
