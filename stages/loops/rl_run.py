"""What the stages of PPO and of the group methods share: before their first step, and after."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages import rows
from stages.loops import rollouts as rollout_batch
from stages.loops import training, work
from stages.loops.rl_loop import RlConfig, RlPreset
from stages.loops.rollouts import Actor, DrawingConfig, Rollouts, Task
from stages.loops.state import State
from stages.loops.work import Step
from stages.models import model_tokenizer, policy, policy_chooser, process_head, scalar_head, size
from stages.models import start as models_start
from stages.models.device import ComputeConfig, setup
from stages.models.policy import Policy
from stages.models.process_head import ProcessScorer, Solution
from stages.models.scalar_head import Ensemble
from stages.models.sharding import shard
from stages.records import lines
from stages.records.problems import Prompt
from stages.rewards import composition, judged, reward_file
from stages.rewards.feedback.prompts import OPTIONS
from stages.rewards.judged import Available, Judged
from stages.rows import Row
from stages.runtime.seeds import SeedRun
from stages.sampler import Guest, Sampler


def begin(
    row: Row,
    seed: int,
    adapters_seed: int,
    config: training.TrainingConfig,
    drawing: DrawingConfig,
    sampler_of: Callable[..., Sampler],
) -> tuple[Actor, Task, PreTrainedTokenizerBase]:
    """The row's policy of this seed, to be trained, the same frozen as the reference, and the task.

    With adapters, drawn from `adapters_seed`, the reference is the policy without them.
    `sampler_of`: policy, tokenizer, and keywords `source` (where the policy was loaded from),
    `compute` and `max_length` (tokens) -> what samples from the policy as it is.
    """
    compute = config.compute
    device, tokenizer = setup(compute), models_start.tokenizer(row.policy, seed)
    load = partial(models_start.load, row.policy, seed, config.model, compute, device)
    trained, prompts = load(), list(lines.read(rows.PROMPTS / "train.jsonl", Prompt))
    without = models_start.attach(trained, config.lora, adapters_seed)
    longest = max((len(prompt.prompt_ids) for prompt in prompts), default=0)
    sampler = sampler_of(
        trained,
        tokenizer,
        source=models_start.source(row.policy, seed, config.model),
        compute=compute,
        max_length=longest + drawing.max_new_tokens,
    )
    learner = shard(Policy(trained, without or nullcontext), compute.dtype)
    actor = Actor(
        policy=learner,
        reference=learner if without else shard(Policy(load(trained=False)), compute.dtype),
        sampler=sampler,
        decode=policy.decoder(tokenizer),
        pad_id=model_tokenizer.pad_id(tokenizer),
        compute=compute,
    )
    task = Task(
        prompts=prompts,
        reward=load_reward(row.source, seed, actor, drawing.max_new_tokens),
        correct=None if prompts[0].answer is None else judged.correct,
    )
    return actor, task, tokenizer


def finish(
    actor: Actor,
    tokenizer: PreTrainedTokenizerBase,
    steps: Iterator[Step],
    state: State,
    config: RlConfig,
    preset: RlPreset,
    row: Row,
    saved: Path,
    logged: Path,
    run: SeedRun,
    value: nn.Module | None = None,
) -> dict[str, Any]:
    """Take all steps and write the policy (`saved`), steps and rollouts (`logged`); the metrics."""
    total = config.num_steps if preset.token_budget is None else None
    save = partial(policy.save, actor.policy.model, tokenizer, dtype=actor.compute.dtype)
    try:
        history = training.take(
            steps, state, run, total=total, num_checkpoints=config.num_checkpoints, save=save
        )
        training.write(saved, logged, save, run, rollouts=True)
    finally:
        # After the last save: vLLM takes the group of several processes down with it.
        if isinstance(actor.sampler, Guest):
            actor.sampler.close()
    assert actor.reference is not None
    models = {"policy": size.measure(actor.policy.model)}
    models["reference"] = size.frozen(actor.reference.model)
    if value is not None:
        models["value"] = size.measure(value)
    if reward_file.read(row.source).model is not None:
        models["scorer"] = size.of_scorer(reward_file.model(row.source, run.seed))
    return {"steps": len(history), **work.learned(history, models)}


def load_reward(
    folder: Path, seed: int, actor: Actor, max_new_tokens: int
) -> Callable[[Rollouts], Judged]:
    """What a completion of `actor` is worth; a model that is asked goes where the policy is."""
    reward = reward_file.read(folder)
    path, device = reward_file.model(folder, seed), actor.policy.device
    compute, score, chooser = actor.compute, None, None
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
    """What a reward model or an ensemble, in eval mode, reads at a completion's last token.

    Logged: how far the members of an ensemble differ.
    """
    groups = rollout_batch.batch_groups(drawn, None, compute.row_tokens)
    found = scalar_head.scores(models, groups, compute, pad_id)
    positions = sum(group.length() for group in groups)
    metrics = {"scorer/positions": positions / len(drawn.samples)}
    if len(models.members) > 1:
        metrics["ensemble/disagreement"] = found.disagreement.mean().item()
    return Judged(totals=found.values.tolist(), metrics=metrics)


def of_steps(scorer: ProcessScorer, drawn: Rollouts) -> Judged:
    """P(right so far) at the last token of each step; nothing for the completion as a whole.

    Steps, lowest and last score are logged: there a policy shows how it earns more, by better
    steps, more of them, or fewer.
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
