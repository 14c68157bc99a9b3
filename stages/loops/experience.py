"""What PPO learns from: rollouts with rewards, values, advantages and returns, all frozen."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stages.algorithms.aggregation import masked_mean, masked_whiten
from stages.algorithms.token_advantages import gae
from stages.loops import measured
from stages.loops import rollouts as rollout_batch
from stages.loops.actor import Actor, Task
from stages.loops.choices.kl_penalty import KlPenalty
from stages.loops.choices.lam import Lambda
from stages.loops.choices.truncation import Truncation
from stages.loops.minibatches import Minibatch, partition, rows_of, split
from stages.loops.rollouts import Rollouts
from stages.models import scalar_head
from stages.models.batch import Batch
from stages.models.device import ComputeConfig
from stages.seeding import derive


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How the completions of a step are drawn, judged and credited."""

    gamma: float
    lam: Lambda
    value_lam: float
    whiten_eps: float | None
    truncation: Truncation
    kl: KlPenalty
    samples_per_prompt: int
    num_minibatches: int
    temperature: float
    max_new_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ValuePart:
    """What the value model learns from in one micro-batch; grids are laid out as `batch.mask`."""

    batch: Batch
    old_values: Float[Tensor, "batch token"]
    returns: Float[Tensor, "batch token"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Experience:
    """One rollout batch; grids over completions are laid out as `rollouts.mask()`."""

    rollouts: Rollouts
    rewards: Float[Tensor, " batch"]
    correct: list[bool]
    minibatches: list[Minibatch]
    advantages: Float[Tensor, "completion longest"]
    """Of the tokens that are learned from; 0 elsewhere."""
    ref_logprobs: Float[Tensor, "completion longest"]
    value_parts: list[list[ValuePart]]
    """Of each mini-batch, its micro-batches: those of `minibatches`."""
    metrics: dict[str, int | float]


@torch.no_grad()
def gather(
    actor: Actor,
    value: nn.Module,
    task: Task,
    plan: Plan,
    chosen: Sequence[int],
    compute: ComputeConfig,
    *,
    kl_coef: float,
    step: int,
    seed: int,
) -> Experience:
    """Sample for the prompts with numbers `chosen`, judge, and estimate advantages.

        r_t  = - kl_coef k_t,  plus the reward of a step at its last token,
               plus the completion's reward at its last token
        A    = GAE(r, V; gamma, lam), whitened over the tokens learned from
        R    = V + GAE(r, V; gamma, value_lam)

    k_t is the estimate of the divergence where it is part of the reward. The micro-batches
    made here are those trained on, so the first ratio is exactly 1.
    """
    assert actor.reference is not None
    drawn = rollout_batch.collect(
        actor.sampler,
        actor.decode,
        [task.prompts[i] for i in chosen],
        step=step,
        seed=seed,
        group_size=plan.samples_per_prompt,
        temperature=plan.temperature,
        max_new_tokens=plan.max_new_tokens,
    )
    truncated, mask = drawn.truncated(), drawn.mask()
    judged = task.reward(drawn)
    end_rewards = torch.tensor(judged.totals, dtype=torch.float32)
    end_rewards = plan.truncation.rewards(end_rewards, truncated)
    correct = task.verdicts(drawn)
    ref_logprobs = measured.reference_logprobs(
        actor.reference, drawn, compute, actor.pad_id, plan.temperature
    )
    learned = plan.truncation.in_loss(truncated)
    minibatches = split(
        drawn,
        used=torch.ones_like(truncated),
        learned=learned,
        computed=learned,
        parts=partition(len(chosen), plan.num_minibatches, derive(seed, "minibatches", step)),
        max_length=plan.max_new_tokens,
        compute=compute,
        pad_id=actor.pad_id,
        device=actor.policy.device,
    )
    values = _values(value, minibatches, mask)
    token_rewards = -measured.penalties(plan.kl, kl_coef, drawn, ref_logprobs)
    rewards = end_rewards
    if judged.step_rewards is not None:
        rewards = end_rewards + judged.step_rewards.sum(1)
        token_rewards += judged.step_rewards
    token_rewards.scatter_add_(1, mask.sum(1, keepdim=True) - 1, end_rewards[:, None])
    mask = mask & learned[:, None]
    advantages, _ = gae(token_rewards, values, mask, gamma=plan.gamma, lam=plan.lam(mask))
    _, returns = gae(token_rewards, values, mask, gamma=plan.gamma, lam=plan.value_lam)
    if plan.whiten_eps is not None:
        advantages = masked_whiten(advantages, mask, eps=plan.whiten_eps)
    return Experience(
        rollouts=drawn,
        rewards=rewards,
        correct=correct,
        minibatches=minibatches,
        advantages=advantages,
        ref_logprobs=ref_logprobs,
        value_parts=[
            [
                ValuePart(
                    batch=batch,
                    old_values=rows_of(values, batch),
                    returns=rows_of(returns, batch),
                )
                for batch in minibatch.batches
            ]
            for minibatch in minibatches
        ],
        metrics={
            **rollout_batch.statistics(drawn, rewards, correct, judged),
            **measured.divergence(drawn, ref_logprobs),
            "value/explained_variance": explained_variance(returns, values, mask),
        },
    )


def _values(
    value: nn.Module, minibatches: Sequence[Minibatch], mask: Bool[Tensor, "batch token"]
) -> Float[Tensor, "batch token"]:
    """The value before each token, in eval mode; 0 where nothing is computed."""
    was_training = value.training
    value.eval()
    grid = torch.zeros(mask.shape)
    for minibatch in minibatches:
        for batch in minibatch.batches:
            found = scalar_head.values(value, batch).cpu()
            grid[batch.indices, : found.shape[1]] = found
    value.train(was_training)
    return grid


def explained_variance(
    returns: Float[Tensor, "batch token"],
    values: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
) -> float:
    """1 - Var(return - V) / Var(return): 1 for a perfect value model, 0 for a constant one.

    0 where the returns do not vary: there is nothing to explain.
    """
    residual = returns - values
    variance = masked_mean((returns - masked_mean(returns, mask)) ** 2, mask)
    unexplained = masked_mean((residual - masked_mean(residual, mask)) ** 2, mask)
    return (1 - unexplained / variance).item() if variance > 1e-8 else 0.0
