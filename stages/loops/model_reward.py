"""The verdict of a reward model, or of an ensemble of them, on sampled completions."""

from collections.abc import Callable
from pathlib import Path

import torch

from stages.loops import rollouts as rollout_batch
from stages.loops.rollouts import Rollouts
from stages.models import ensemble
from stages.models.aggregate import Aggregate
from stages.models.batch import micro_batches
from stages.models.device import ComputeConfig
from stages.models.ensemble import Ensemble, Scores
from stages.rewards.judged import Judged


def load(
    path: Path, aggregate: Aggregate, compute: ComputeConfig, device: torch.device, pad_id: int
) -> Callable[[Rollouts], Judged]:
    """The reward model or the ensemble at `path`, as a function of completions."""
    models = ensemble.load(path, aggregate, compute, device)
    return lambda drawn: judge(models, drawn, compute, pad_id)


def judge(models: Ensemble, drawn: Rollouts, compute: ComputeConfig, pad_id: int) -> Judged:
    """`scores` as rewards; of several members, how far they disagree is logged."""
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
    values, disagreement = torch.zeros(2, len(drawn.samples))
    for batch in micro_batches(groups, compute, pad_id, models.device):
        found = models(batch)
        values[batch.indices] = found.values.cpu()
        disagreement[batch.indices] = found.disagreement.cpu()
    return Scores(values=values, disagreement=disagreement)
