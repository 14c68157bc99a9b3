"""The reward of a folder `data/rewards/<name>`, as a function of completions."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path

import torch

from stages.loops import rollouts as rollout_batch
from stages.loops.rollouts import Actor, Rollouts
from stages.models import ensemble, policy_chooser, process_head
from stages.models.device import ComputeConfig
from stages.models.ensemble import Ensemble, Scores
from stages.models.process_head import ProcessScorer, Solution
from stages.rewards import composition, reward_file
from stages.rewards.feedback.prompts import OPTIONS
from stages.rewards.judged import Available, Judged


def load(
    folder: Path, seed: int, actor: Actor, compute: ComputeConfig, max_new_tokens: int
) -> Callable[[Rollouts], Judged]:
    """What a completion is worth.

    Args:
        folder: of the reward, with its `reward.json`.
        seed: whose model is asked, where there is one.
        actor: whose completions are judged; the model goes where its policy is.
        compute: the model's precision.
        max_new_tokens: where completions are cut.
    """
    reward = reward_file.read(folder)
    path, device = reward_file.model(folder, seed), actor.policy.device
    score, chooser = None, None
    match reward.model:
        case "reward":
            models = ensemble.load(path, reward.aggregate, compute, device)
            score = partial(of_model, models, compute=compute, pad_id=actor.pad_id)
        case "process":
            score = partial(of_steps, process_head.load_scorer(path, compute, device))
        case "policy":
            chooser = policy_chooser.load(path, OPTIONS, compute, device)
    function = None if reward.own is None else reward_file.load_own(reward.own)

    def judge(drawn: Rollouts) -> Judged:
        available = Available(
            scorer=None if score is None else partial(score, drawn),
            judge=chooser,
            own=function,
            max_new_tokens=max_new_tokens,
        )
        return composition.compose(reward.composition, drawn, available)

    return judge


def of_model(models: Ensemble, drawn: Rollouts, compute: ComputeConfig, pad_id: int) -> Judged:
    """`scores` of a reward model, or of an ensemble, as rewards.

    Of several members, how far they disagree is logged.
    """
    found = scores(models, drawn, compute, pad_id)
    several = len(models.members) > 1
    positions = rollout_batch.num_positions(drawn, compute.row_tokens)
    metrics = {"scorer/positions": positions / len(drawn.samples)}
    if several:
        metrics["ensemble/disagreement"] = found.disagreement.mean().item()
    return Judged(totals=found.values.tolist(), metrics=metrics)


def scores(models: Ensemble, drawn: Rollouts, compute: ComputeConfig, pad_id: int) -> Scores:
    """What each completion is worth, read at its last token in eval mode; on the CPU."""
    every = torch.ones(len(drawn.samples), dtype=torch.bool)
    groups = rollout_batch.batch_groups(drawn, every, compute.row_tokens)
    return ensemble.scores(models, groups, compute, pad_id)


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
