"""A reward model's verdict on sampled completions."""

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import PreTrainedModel

from stages.loops import rollouts as rollout_batch
from stages.loops.rollouts import Rollouts
from stages.models import scalar_head
from stages.models.batch import micro_batches
from stages.models.device import ComputeConfig
from stages.rewards.judged import Judged


def load(
    path: Path, compute: ComputeConfig, device: torch.device, pad_id: int
) -> Callable[[Rollouts], Judged]:
    """The reward model at `path`, as a function of completions."""
    model = scalar_head.load(path, compute, device)
    return lambda drawn: Judged(totals=scores(model, drawn, compute, pad_id))


@torch.no_grad()
def scores(
    model: PreTrainedModel, drawn: Rollouts, compute: ComputeConfig, pad_id: int
) -> list[float]:
    """The scalar at the last token of each completion, in eval mode."""
    model.eval()
    every = torch.ones(len(drawn.samples), dtype=torch.bool)
    groups = rollout_batch.batch_groups(drawn, every, compute.row_tokens)
    found = torch.zeros(len(drawn.samples))
    for batch in micro_batches(groups, compute, pad_id, model.device):
        found[batch.indices] = scalar_head.rewards(model, batch).cpu()
    return found.tolist()
