"""Completions of a rollout batch as mini-batches to learn from, with their counts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.loops import rollouts as rollout_batch
from stages.loops.choices.aggregation import Counts
from stages.loops.rollouts import Rollouts
from stages.models.batch import Batch, micro_batches
from stages.models.device import ComputeConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Minibatch:
    """What one optimizer step reads."""

    batches: list[Batch]
    """Of the completions that have a gradient."""
    counts: Counts
    """Of all that the step is a mean over, those without a gradient included."""


def partition(num_prompts: int, num_minibatches: int, seed: int) -> list[list[int]]:
    """Prompt numbers of each mini-batch, shuffled; a prompt's completions stay together."""
    order = np.random.default_rng(seed).permutation(num_prompts)
    return [part.tolist() for part in np.array_split(order, num_minibatches)]


def split(
    drawn: Rollouts,
    *,
    used: Bool[Tensor, " batch"],
    learned: Bool[Tensor, " batch"],
    computed: Bool[Tensor, " batch"],
    parts: Sequence[Sequence[int]],
    max_length: int,
    compute: ComputeConfig,
    pad_id: int,
    device: torch.device,
) -> list[Minibatch]:
    """One mini-batch for each list of prompt numbers in `parts`.

    Args:
        drawn: all completions of the rollout batch.
        used: which of them the step is a mean over.
        learned: of those, the ones whose tokens count.
        computed: of those, the ones with a gradient: only these reach the model.
        parts: see `partition`.
        max_length: longest completion that could have been sampled.
        compute, pad_id, device: see `micro_batches`.
    """
    lengths = torch.tensor([len(sample.token_ids) for sample in drawn.samples])
    prompt_of = torch.tensor(drawn.groups)
    minibatches = []
    for numbers in parts:
        inside = torch.isin(prompt_of, torch.tensor(numbers, dtype=torch.long))
        groups = rollout_batch.batch_groups(drawn, inside & computed, compute.row_tokens)
        counts = Counts(
            num_tokens=int(lengths[inside & learned].sum()),
            num_sequences=int((inside & used).sum()),
            max_length=max_length,
        )
        batches = list(micro_batches(groups, compute, pad_id, device))
        minibatches.append(Minibatch(batches=batches, counts=counts))
    return minibatches


def rows_of(
    grid: Float[Tensor, "completion longest"], batch: Batch
) -> Float[Tensor, "batch token"]:
    """The batch's rows of a grid over all completions, on the batch's device."""
    return grid[batch.indices, : batch.mask.shape[1]].to(batch.mask.device)
