"""Log-probs of rollouts under frozen weights, and the divergences that they show.

Of the policy from the reference: always measured, penalised on demand. Of the policy from the old
policy, which drew the completions: how far a rollout batch's updates moved it.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms import kl
from stages.algorithms.aggregation import masked_mean, masked_sum
from stages.loops import rollouts as rollout_batch
from stages.loops.kl_penalty import ESTIMATORS, KlInReward, KlPenalty
from stages.loops.objective import Part
from stages.loops.rollouts import Rollouts
from stages.models.batch import Batch, micro_batches
from stages.models.device import ComputeConfig
from stages.models.policy import completion_logprobs

# On a GPU another kernel may be chosen when gradients are on, and round differently.
ON_POLICY_TOLERANCE = {"cpu": 0.0, "cuda": 0.05}


@torch.no_grad()
def frozen_logprobs(
    model: PreTrainedModel, batches: Sequence[Batch], *, temperature: float
) -> list[Float[Tensor, "_ _"]]:
    """Of each batch's completions, in eval mode; the temperature is the sampling one."""
    was_training = model.training
    model.eval()
    logprobs = [completion_logprobs(model, b, temperature=temperature)[0] for b in batches]
    model.train(was_training)
    return logprobs


def check_on_policy(
    logprobs: Float[Tensor, "batch token"], old_logprobs: Float[Tensor, "batch token"]
) -> None:
    """Assert that the ratio of new to old is 1 on the first mini-batch of an on-policy step."""
    gap = (logprobs - old_logprobs).abs().max().item()
    assert gap <= ON_POLICY_TOLERANCE[logprobs.device.type], (
        f"log-probs moved by {gap} before any update: the forward pass is not a function of "
        f"weights and tokens alone (dropout, or a kernel that is not deterministic)"
    )


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


def from_reference(drawn: Rollouts, ref_logprobs: Float[Tensor, "batch token"]) -> dict[str, float]:
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
    """The divergence's cost at each token, where it is part of the reward; else 0."""
    mask = drawn.mask()
    if not isinstance(config, KlInReward):
        return torch.zeros(mask.shape)
    cost = coef * ESTIMATORS[config.estimator](drawn.sampler_logprobs(), ref_logprobs)
    return torch.where(mask, cost, 0.0)


def from_old(
    policy: PreTrainedModel, minibatches: Sequence[Sequence[Part]], *, temperature: float
) -> float:
    """KL(old || policy) a token, after the last update, on the tokens learned from.

    Estimated without bias under the old policy, which drew them: exp(d) - 1 - d with
    d = log policy - log old. The coefficient `old_kl` follows it (Schulman et al. 2017,
    section 4, measure it after the updates too). One forward pass more.
    """
    parts = [part for minibatch in minibatches for part in minibatch]
    news = frozen_logprobs(policy, [part.batch for part in parts], temperature=temperature)
    total, num_tokens = 0.0, 0
    for part, new in zip(parts, news, strict=True):
        assert part.old_logprobs is not None, "the old log-probs were not kept"
        total += masked_sum(kl.k3(part.old_logprobs, new), part.batch.mask).item()
        num_tokens += int(part.batch.mask.sum())
    return total / max(1, num_tokens)
