"""Proximal policy optimisation with a value model."""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from stages.algorithms.aggregation import masked_mean, masked_whiten
from stages.algorithms.token_advantages import gae
from stages.loops import divergence, rl_loop
from stages.loops import rollouts as rollout_batch
from stages.loops.critic import Critic, ValuePart
from stages.loops.epochs import Schedule
from stages.loops.minibatches import Minibatch, partition, rows_of, split
from stages.loops.ppo_preset import PpoConfig, PpoPreset, check
from stages.loops.rl_loop import Experience
from stages.loops.rollouts import Actor, Task
from stages.loops.step import Step
from stages.models import scalar_head
from stages.models.device import ComputeConfig
from stages.seeding import derive


def train(
    actor: Actor,
    value: nn.Module,
    task: Task,
    schedule: Schedule,
    config: PpoConfig,
    preset: PpoPreset,
    compute: ComputeConfig,
    seed: int,
) -> Iterator[Step]:
    """One step for each list of prompt numbers in `schedule`; policy and value model change.

    See `gather` for rewards, advantages and returns, and `rl_loop.train` for the rest. The value
    loss is a token mean.

    Raises:
        ValueError: more mini-batches than prompts; no reference; or see `rl_loop.train`.
    """
    check(config, preset)
    if actor.reference is None:
        raise ValueError("PPO measures the divergence from a reference: give one")
    collect = partial(gather, actor, value, task, config, preset, compute, seed)
    critic = Critic(value, preset.value, config.value_optim)
    return rl_loop.train(actor, collect, schedule, config, preset, compute, critic)


@torch.no_grad()
def gather(
    actor: Actor,
    value: nn.Module,
    task: Task,
    config: PpoConfig,
    preset: PpoPreset,
    compute: ComputeConfig,
    seed: int,
    step: int,
    chosen: Sequence[int],
    kl_coef: float,
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
        group_size=config.samples_per_prompt,
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
    )
    mask, treatment = drawn.mask(), preset.truncation(truncated=drawn.truncated())
    judged = task.reward(drawn)
    end_rewards = torch.tensor(judged.totals, dtype=torch.float32) - treatment.penalties
    correct = task.verdicts(drawn)
    ref_logprobs = divergence.reference_logprobs(
        actor.reference, drawn, compute, actor.pad_id, config.temperature
    )
    # `mask` and `exclude` are the same here: the value model is the baseline.
    learned = treatment.in_loss
    minibatches = split(
        drawn,
        used=torch.ones_like(learned),
        learned=learned,
        computed=learned,
        parts=partition(len(chosen), preset.num_minibatches, derive(seed, "minibatches", step)),
        max_length=config.max_new_tokens,
        compute=compute,
        pad_id=actor.pad_id,
        device=actor.policy.device,
    )
    values = _values(value, minibatches, mask)
    token_rewards = -divergence.penalties(preset.kl, kl_coef, drawn, ref_logprobs)
    rewards = end_rewards
    if judged.step_rewards is not None:
        rewards = end_rewards + judged.step_rewards.sum(1)
        token_rewards += judged.step_rewards
    token_rewards.scatter_add_(1, mask.sum(1, keepdim=True) - 1, end_rewards[:, None])
    mask = mask & learned[:, None]
    gamma, lam = preset.gamma, preset.lam(lengths=mask.sum(1))
    advantages, _ = gae(token_rewards, values, mask, gamma=gamma, lam=lam)
    _, returns = gae(token_rewards, values, mask, gamma=gamma, lam=preset.value_lam)
    if preset.whiten_eps is not None:
        advantages = masked_whiten(advantages, mask, eps=preset.whiten_eps)
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
            **divergence.from_reference(drawn, ref_logprobs),
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
