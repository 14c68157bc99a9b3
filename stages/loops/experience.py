"""What PPO learns from: rollouts with rewards, values, advantages and returns, all frozen."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms import kl
from stages.algorithms.gae import gae
from stages.algorithms.masking import masked_mean, masked_sum, masked_whiten
from stages.loops import rollouts as rollout_batch
from stages.loops.old_logprobs import frozen_logprobs
from stages.loops.rollouts import Rollouts
from stages.models import scalar_head
from stages.models.batch import Batch, micro_batches
from stages.models.device import ComputeConfig

WHITEN_EPS = 1e-8


@dataclass(frozen=True, kw_only=True, slots=True)
class Experience:
    """One micro-batch of experience; every tensor is laid out as `batch.mask`."""

    batch: Batch
    old_logprobs: Float[Tensor, "batch token"]
    old_values: Float[Tensor, "batch token"]
    advantages: Float[Tensor, "batch token"]
    """Whitened over the whole rollout batch."""
    returns: Float[Tensor, "batch token"]


@torch.no_grad()
def gather(
    policy: PreTrainedModel,
    value: PreTrainedModel,
    reference: PreTrainedModel,
    reward: PreTrainedModel,
    drawn: Rollouts,
    minibatches: Sequence[Sequence[int]],
    *,
    gamma: float,
    lam: float,
    kl_coef: float,
    temperature: float,
    compute: ComputeConfig,
    pad_id: int,
) -> tuple[list[list[Experience]], Float[Tensor, " batch"], dict[str, float]]:
    """Experience of each mini-batch, the reward model's scores, and measurements.

        r_t = - kl_coef (log pi_old - log pi_ref)_t,  plus the score at the last token

    All models in eval mode. The micro-batches made here are those trained on, so the
    first ratio is exactly 1.
    """
    parts: list[list[Batch]] = []
    for numbers in minibatches:
        keep = torch.zeros(len(drawn.prompts), dtype=torch.bool)
        keep[list(numbers)] = True
        groups = rollout_batch.groups(drawn, keep, compute.row_tokens)
        parts.append(list(micro_batches(groups, compute, pad_id, policy.device)))
    batches = [batch for part in parts for batch in part]
    old = frozen_logprobs(policy, batches, temperature=temperature)
    ref = frozen_logprobs(reference, batches, temperature=temperature)
    scores, computed = torch.zeros(len(drawn.samples)), []
    for batch, old_logprobs, ref_logprobs in zip(batches, old, ref, strict=True):
        score = scalar_head.rewards(reward, batch)
        scores[batch.indices] = score.cpu()
        rewards = -kl_coef * kl.k1(old_logprobs, ref_logprobs)
        last = batch.mask.sum(1, keepdim=True) - 1
        rewards = rewards.scatter_add(1, last, score[:, None])
        old_values = scalar_head.values(value, batch)
        advantages, returns = gae(rewards, old_values, batch.mask, gamma=gamma, lam=lam)
        computed.append((old_values, advantages, returns))
    whitened = _whiten([advantages for _, advantages, _ in computed], batches)
    flat = [
        Experience(
            batch=batch,
            old_logprobs=old_logprobs,
            old_values=old_values,
            advantages=advantages,
            returns=returns,
        )
        for batch, old_logprobs, (old_values, _, returns), advantages in zip(
            batches, old, computed, whitened, strict=True
        )
    ]
    grouped = iter(flat)
    experiences = [[next(grouped) for _ in part] for part in parts]
    return experiences, scores, _measure(drawn, flat, ref)


def _whiten(
    grids: Sequence[Float[Tensor, "_ _"]], batches: Sequence[Batch]
) -> list[Float[Tensor, "_ _"]]:
    """Mean 0 and variance 1 over the counted tokens of all micro-batches together."""
    flat = torch.cat([g[b.mask] for g, b in zip(grids, batches, strict=True)])[None]
    whitened = masked_whiten(flat, torch.ones_like(flat, dtype=torch.bool), eps=WHITEN_EPS)[0]
    sizes = [int(batch.mask.sum()) for batch in batches]
    return [
        torch.zeros_like(grid).masked_scatter(batch.mask, part)
        for grid, batch, part in zip(grids, batches, whitened.split(sizes), strict=True)
    ]


def _measure(
    drawn: Rollouts, flat: Sequence[Experience], ref: Sequence[Float[Tensor, "_ _"]]
) -> dict[str, float]:
    """Divergence from the reference, the sampler's gap (checked) and the value model's fit."""
    num_tokens = sum(int(part.batch.mask.sum()) for part in flat)
    old_logprobs = [part.old_logprobs for part in flat]
    gap = rollout_batch.sampler_gap(drawn, [part.batch for part in flat], old_logprobs)
    k1 = k3 = 0.0
    for part, ref_logprobs in zip(flat, ref, strict=True):
        mask, old = part.batch.mask, part.old_logprobs
        k1 += masked_sum(kl.k1(old, ref_logprobs), mask).item() / num_tokens
        k3 += masked_sum(kl.k3(old, ref_logprobs), mask).item() / num_tokens
    returns = torch.cat([part.returns[part.batch.mask] for part in flat])[None]
    predicted = torch.cat([part.old_values[part.batch.mask] for part in flat])[None]
    every = torch.ones_like(returns, dtype=torch.bool)
    residual = returns - predicted
    variance = masked_mean((returns - masked_mean(returns, every)) ** 2, every)
    unexplained = masked_mean((residual - masked_mean(residual, every)) ** 2, every)
    return {
        "kl/k1": k1,
        "kl/k3": k3,
        "sampling/logprob_gap": gap,
        "value/explained_variance": (1 - unexplained / variance.clamp(min=1e-8)).item(),
    }
