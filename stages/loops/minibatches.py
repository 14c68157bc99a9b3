"""Completions of a rollout batch as mini-batches to learn from, with their counts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel

from stages.loops import rollouts as rollout_batch
from stages.loops.divergence import frozen_logprobs
from stages.loops.objective import Counts, Part
from stages.loops.rollouts import Rollouts
from stages.models.batch import Batch, micro_batches
from stages.models.device import ComputeConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Minibatch:
    """The completions of one optimizer step."""

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


def make_parts(
    policy: PreTrainedModel,
    minibatches: Sequence[Minibatch],
    *,
    rollouts: Rollouts,
    advantages: Float[Tensor, "completion longest"],
    ref_logprobs: Float[Tensor, "completion longest"] | None,
    correct: Sequence[bool],
    temperature: float,
    reuse: bool,
) -> list[list[Part]]:
    """The micro-batches of each mini-batch; the grids given are over all completions.

    Old log-probs are those of the very micro-batches trained on, in eval mode, so that the
    first ratio is exactly 1. Without `reuse` (one update in all) they are the new ones.
    """
    sampled = rollouts.sampler_logprobs()
    right = torch.tensor(correct)
    return [
        [
            Part(
                batch=batch,
                old_logprobs=old,
                ref_logprobs=None if ref_logprobs is None else rows_of(ref_logprobs, batch),
                sampler_logprobs=rows_of(sampled, batch),
                advantages=rows_of(advantages, batch),
                correct=right[batch.indices].to(batch.mask.device),
            )
            for batch, old in zip(
                minibatch.batches,
                frozen_logprobs(policy, minibatch.batches, temperature=temperature)
                if reuse
                else [None] * len(minibatch.batches),
                strict=True,
            )
        ]
        for minibatch in minibatches
    ]
