"""A process reward model's verdict on each step of sampled completions."""

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import torch

from stages.loops.rollouts import Rollouts
from stages.models import process_scorer
from stages.models.device import ComputeConfig
from stages.models.process_head import Solution
from stages.models.process_scorer import ProcessScorer
from stages.rewards.judged import Judged


def load(path: Path, compute: ComputeConfig, device: torch.device) -> Callable[[Rollouts], Judged]:
    """The process reward model at `path`, as a function of completions."""
    scorer = process_scorer.load(path, compute, device)
    return lambda drawn: judge(scorer, drawn)


def judge(scorer: ProcessScorer, drawn: Rollouts) -> Judged:
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
