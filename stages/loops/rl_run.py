"""What the stages of PPO and of the group methods share: before their first step, and after.

Before it stands the reward of a folder `data/rewards/<name>`, as a function of completions.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import rows
from stages.loops import epochs, training, work
from stages.loops import rollouts as rollout_batch
from stages.loops.epochs import Schedule
from stages.loops.rollouts import Actor, Rollouts, Task
from stages.loops.work import Step
from stages.models import model_tokenizer, policy, policy_chooser, process_head, scalar_head, size
from stages.models import start as models_start
from stages.models.device import ComputeConfig, setup
from stages.models.process_head import ProcessScorer, Solution
from stages.models.scalar_head import Ensemble, Scores
from stages.models.size import Size
from stages.models.start import Merge, ModelConfig
from stages.records import lines
from stages.records.problems import Prompt
from stages.rewards import composition, judged, reward_file
from stages.rewards.feedback.prompts import OPTIONS
from stages.rewards.judged import Available, Judged
from stages.rows import Row
from stages.runtime.seeds import SeedRun
from stages.sampler import Sampler


class Start(NamedTuple):
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
    """Load all that the row names, of this seed.

    Args:
        row, seed: policy and reward.
        model: what the base model is.
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
        reward=load_reward(row.source, seed, actor, compute, max_new_tokens),
        correct=judged.correct,
    )
    return Start(actor, task, tokenizer)


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
    total, tokenizer = epochs.length(schedule), start.tokenizer
    history = training.take(steps, total, num_checkpoints, merged, tokenizer, folders, run)
    models = sizes(start.actor, row, run.seed, value)
    learned = work.learned([step.metrics for step in history], models)
    metrics = {"steps": len(history), **learned}
    rollouts = (rollout for step in history for rollout in step.rows)
    training.write(folders, run.seed, merged(), tokenizer, history, metrics, rollouts)
    return metrics


def sizes(actor: Actor, row: Row, seed: int, value: nn.Module | None) -> dict[str, Size]:
    """Policy, reference, value model, and the model that the reward asks; those that there are.

    Of an ensemble the members are counted together; of a value model with a trunk shared with the
    policy, its head alone is its own.
    """
    assert actor.reference is not None
    found = {"policy": size.measure(actor.policy), "reference": size.frozen(actor.reference)}
    if value is not None:
        found["value"] = size.measure(value)
    if reward_file.read(row.source).model is not None:
        found["scorer"] = size.of_scorer(reward_file.model(row.source, seed))
    return found


def load_reward(
    folder: Path, seed: int, actor: Actor, compute: ComputeConfig, max_new_tokens: int
) -> Callable[[Rollouts], Judged]:
    """What a completion of `actor`, cut at `max_new_tokens`, is worth.

    The model that is asked, where there is one, is that of `seed`; it goes where the policy is.
    """
    reward = reward_file.read(folder)
    path, device = reward_file.model(folder, seed), actor.policy.device
    score, chooser = None, None
    match reward.model:
        case "reward":
            models = scalar_head.load_ensemble(path, reward.aggregate, compute, device)
            score = partial(of_model, models, compute=compute, pad_id=actor.pad_id)
        case "process":
            score = partial(of_steps, process_head.load_scorer(path, compute, device))
        case "policy":
            chooser = policy_chooser.load(path, OPTIONS, compute, device)
    function = None if reward.own is None else reward_file.load_own(reward.own)

    def judge(drawn: Rollouts) -> Judged:
        scorer = None if score is None else partial(score, drawn)
        available = Available(
            scorer=scorer, judge=chooser, own=function, max_new_tokens=max_new_tokens
        )
        return composition.compose(reward.composition, drawn, available)

    return judge


def of_model(models: Ensemble, drawn: Rollouts, compute: ComputeConfig, pad_id: int) -> Judged:
    """`scores` of a reward model, or of an ensemble, as rewards, with how far members differ."""
    found = scores(models, drawn, compute, pad_id)
    positions = rollout_batch.num_positions(drawn, compute.row_tokens)
    metrics = {"scorer/positions": positions / len(drawn.samples)}
    if len(models.members) > 1:
        metrics["ensemble/disagreement"] = found.disagreement.mean().item()
    return Judged(totals=found.values.tolist(), metrics=metrics)


def scores(models: Ensemble, drawn: Rollouts, compute: ComputeConfig, pad_id: int) -> Scores:
    """What each completion is worth, read at its last token in eval mode; on the CPU."""
    groups = rollout_batch.batch_groups(drawn, None, compute.row_tokens)
    return scalar_head.scores(models, groups, compute, pad_id)


def of_steps(scorer: ProcessScorer, drawn: Rollouts) -> Judged:
    """P(right so far) at the last token of each step; nothing for the completion as a whole.

    Logged: steps of a completion, its lowest and its last score. A policy that is paid for
    steps shows there how it earns more: by better steps, more of them, or fewer.
    """
    solutions = [
        Solution(prompt_ids=drawn.prompt(i).prompt_ids, steps=scorer.split(sample.token_ids))
        for i, sample in enumerate(drawn.samples)
    ]
    scores = scorer(solutions)
    ends = torch.zeros_like(drawn.mask())
    for row, solution in zip(ends, solutions, strict=True):
        row[[end - 1 for end in accumulate(map(len, solution.steps))]] = True
    # Both are in the order of rows and then of tokens.
    values = torch.tensor([score for own in scores for score in own])
    return Judged(
        totals=[0.0] * len(scores),
        step_rewards=torch.zeros(ends.shape).masked_scatter(ends, values),
        step_ends=ends,
        metrics={
            "scorer/positions": scorer.num_positions(solutions) / len(solutions),
            "process/steps": sum(map(len, scores)) / len(scores),
            "process/lowest": sum(map(min, scores)) / len(scores),
            "process/last": sum(own[-1] for own in scores) / len(scores),
        },
    )
