"""Proximal policy optimisation with a value model."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated

import torch
from jaxtyping import Bool
from pydantic import Field
from torch import Tensor, nn

from stages.algorithms.aggregation import masked_mean, masked_whiten
from stages.algorithms.token_advantages import gae, length_adaptive_lambda
from stages.choice import Choice, OneOf
from stages.loops import divergence, rl_loop, work
from stages.loops import rollouts as rollout_batch
from stages.loops.advantages import Grid, token_rewards
from stages.loops.critic import Critic, ValueConfig
from stages.loops.policy_gradient import Experience, split
from stages.loops.rl_loop import RlConfig, RlPreset
from stages.loops.rollouts import Actor, Task
from stages.loops.state import State
from stages.loops.work import Step
from stages.models.batch import Batch, frozen
from stages.optim import OptimConfig
from stages.rewards.reward_file import RewardFile
from stages.seeding import derive


def fixed(*, value: float) -> float:
    """One lambda for every completion. 1: return minus value; 0: the one-step residual."""
    return value


Lambda = Annotated[
    Choice,
    OneOf(
        {"fixed": fixed, "length_adaptive": length_adaptive_lambda},
        given=("lengths",),
        bounds={"value": Field(ge=0, le=1), "alpha": Field(gt=0)},
        number="fixed",
    ),
]
"""Lambda of generalised advantage estimation: a number, or longer for longer completions."""


class PpoConfig(RlConfig):
    """Sizes and rates, the same for every preset."""

    samples_per_prompt: int = Field(gt=0)
    """Completions of each prompt; 1 in the paper, more share the reading of the prompt."""
    value_optim: OptimConfig


class PpoPreset(RlPreset):
    """Whose variant it is."""

    gamma: float = Field(gt=0, le=1)
    """Discount per token."""
    lam: Lambda
    """For the policy's advantages."""
    value_lam: float = Field(ge=0, le=1)
    """Lambda of the returns that the value model learns; VAPO: 1."""
    whiten_eps: float | None = Field(gt=0)
    """Added to the variance when advantages are whitened over the batch; null: they are not."""
    value: ValueConfig


def check_reward(config: PpoConfig, preset: PpoPreset, reward: RewardFile) -> None:
    """Refuse a reward that the preset makes nothing of."""
    parts = reward.composition
    parts.check_lengths(config.max_new_tokens)
    parts.check_group_size(config.samples_per_prompt, "samples_per_prompt")
    if parts.combine.kind == "normalise":
        raise ValueError("the value model is PPO's baseline: its reward needs combine: {kind: sum}")
    if "group" in parts.compares() and config.samples_per_prompt == 1:
        raise ValueError(
            "samples_per_prompt is 1; a component with normalise group compares the completions of "
            "a prompt with each other: at least 2, or normalise batch"
        )
    if preset.value.init == "reward_model" and reward.model != "reward":
        raise ValueError(
            f"value.init is reward_model: expected a reward whose model scores completions, found "
            f"one of kind {reward.kind} whose model is {reward.model}. Take a preset with "
            f"value.init policy, such as ppo_process, or another reward."
        )


def train(
    actor: Actor,
    value: nn.Module,
    task: Task,
    schedule: Iterable[Sequence[int]],
    config: PpoConfig,
    preset: PpoPreset,
    seed: int,
    state: State | None = None,
) -> Iterator[Step]:
    """One step for each list of prompt numbers in `schedule`; policy and value model change.

    See `gather` for rewards, advantages and returns, and `rl_loop.train` for the rest. The value
    loss is a token mean.
    """
    rl_loop.check(config, preset)
    if actor.reference is None:
        raise ValueError("PPO measures the divergence from a reference: give one")
    collect = partial(gather, actor, value, task, config, preset, seed)
    state = state or State()
    critic = Critic(value, preset.value, config.value_optim, state)
    return rl_loop.train(actor, collect, schedule, config, preset, state, critic)


@torch.no_grad()
def gather(
    actor: Actor,
    value: nn.Module,
    task: Task,
    config: PpoConfig,
    preset: PpoPreset,
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

    k_t is the estimate of the divergence where it is part of the reward.
    """
    drawn = rollout_batch.collect(
        actor.sampler,
        actor.decode,
        [task.prompts[i] for i in chosen],
        config=config,
        step=step,
        seed=seed,
        group_size=config.samples_per_prompt,
    )
    judged, correct = rl_loop.judge(task, preset, drawn), task.verdicts(drawn)
    divergences = divergence.measure(actor, drawn, preset.kl, kl_coef, config.temperature)
    # `mask` and `exclude` are the same here: the value model is the baseline.
    learned = preset.treatment(drawn).in_loss
    minibatches = split(
        actor,
        drawn,
        preset.num_minibatches,
        derive(seed, "minibatches", step),
        used=torch.ones_like(learned),
        learned=learned,
        computed=learned,
        max_length=config.max_new_tokens,
    )
    mask = drawn.mask()
    batches = [batch for minibatch in minibatches for batch in minibatch.batches]
    values = _values(value, batches, mask)
    totals = torch.tensor(judged.totals)
    paid = token_rewards(totals, judged.step_rewards, divergences.penalties, mask)
    mask = mask & learned[:, None]
    gamma, lam = preset.gamma, preset.lam(lengths=mask.sum(1))
    advantages, _ = gae(paid, values, mask, gamma=gamma, lam=lam)
    _, returns = gae(paid, values, mask, gamma=gamma, lam=preset.value_lam)
    if preset.whiten_eps is not None:
        advantages = masked_whiten(advantages, mask, eps=preset.whiten_eps)
    metrics = rollout_batch.statistics(drawn, judged, task.correct and correct)
    metrics |= divergences.metrics
    metrics |= work.of_batches("value", "read", batches, logits=False)
    metrics["value/explained_variance"] = explained_variance(returns, values, mask)
    return Experience(
        rollouts=drawn,
        rewards=judged.rewards(),
        correct=correct,
        minibatches=minibatches,
        advantages=advantages,
        ref_logprobs=divergences.ref_logprobs,
        values=values,
        returns=returns,
        metrics=metrics,
    )


def _values(value: nn.Module, batches: Sequence[Batch], mask: Bool[Tensor, "batch token"]) -> Grid:
    """The value before each token, in eval mode; 0 where nothing is computed."""
    grid = torch.zeros(mask.shape)
    with frozen(value):
        for batch in batches:
            found = value(batch, each_token=True).cpu()
            grid[batch.indices, : found.shape[1]] = found
    return grid


def explained_variance(returns: Grid, values: Grid, mask: Bool[Tensor, "batch token"]) -> float:
    """1 - Var(return - V) / Var(return): 1 for a perfect value model, 0 for a constant one.

    0 where the returns do not vary: there is nothing to explain.
    """
    residual = returns - values
    variance = masked_mean((returns - masked_mean(returns, mask)) ** 2, mask)
    unexplained = masked_mean((residual - masked_mean(residual, mask)) ** 2, mask)
    return (1 - unexplained / variance).item() if variance > 1e-8 else 0.0
