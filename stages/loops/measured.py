"""The divergence of fresh completions from the reference, always measured, penalised on demand."""

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms import kl
from stages.algorithms.aggregation import masked_mean, masked_sum
from stages.loops import rollouts as rollout_batch
from stages.loops.choices.kl_penalty import KlInReward, KlPenalty, estimate
from stages.loops.old_logprobs import frozen_logprobs
from stages.loops.rollouts import Rollouts
from stages.models.batch import micro_batches
from stages.models.device import ComputeConfig


def reference_logprobs(
    reference: PreTrainedModel,
    drawn: Rollouts,
    compute: ComputeConfig,
    pad_id: int,
    temperature: float,
) -> Float[Tensor, "batch token"]:
    """log p of every token of every completion, laid out as `drawn.mask()`, on the CPU."""
    every = torch.ones(len(drawn.samples), dtype=torch.bool)
    groups = rollout_batch.batch_groups(drawn, every, compute.row_tokens)
    batches = list(micro_batches(groups, compute, pad_id, reference.device))
    grid = torch.zeros(drawn.mask().shape)
    found = frozen_logprobs(reference, batches, temperature=temperature)
    for batch, logprobs in zip(batches, found, strict=True):
        grid[batch.indices, : logprobs.shape[1]] = logprobs.cpu()
    return grid


def divergence(drawn: Rollouts, ref_logprobs: Float[Tensor, "batch token"]) -> dict[str, float]:
    """Unbiased estimates of KL(policy || reference): k1 and k3 a token, k1 a completion.

    Over all that was drawn, under the log-probs it was drawn with: leaving out groups
    without signal would bias them.
    """
    mask, logprobs = drawn.mask(), drawn.sampler_logprobs()
    k1 = kl.k1(logprobs, ref_logprobs)
    return {
        "kl/k1": masked_mean(k1, mask).item(),
        "kl/k3": masked_mean(kl.k3(logprobs, ref_logprobs), mask).item(),
        "kl/sequence": masked_sum(k1, mask).item() / len(mask),
    }


def penalties(
    config: KlPenalty, coef: float, drawn: Rollouts, ref_logprobs: Float[Tensor, "batch token"]
) -> Float[Tensor, "batch token"]:
    """What the divergence costs at each token, where it is part of the reward; else 0."""
    mask = drawn.mask()
    if not isinstance(config, KlInReward):
        return torch.zeros(mask.shape)
    cost = coef * estimate(config.estimator, drawn.sampler_logprobs(), ref_logprobs)
    return torch.where(mask, cost, 0.0)
