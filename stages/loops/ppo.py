"""Proximal policy optimisation with a learned reward and a value model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel

from stages.algorithms.aggregation import token_mean
from stages.algorithms.losses.clipped_surrogate import clipped_surrogate
from stages.algorithms.losses.value import clipped_value_loss
from stages.algorithms.masking import masked_sum
from stages.loops import rollouts as rollout_batch
from stages.loops.experience import Experience, gather
from stages.loops.old_logprobs import check_on_policy
from stages.loops.rollouts import Rollouts
from stages.loops.step import Step
from stages.models.device import ComputeConfig
from stages.models.policy import completion_logprobs
from stages.models.scalar_head import values
from stages.optim import OptimConfig, adamw, update
from stages.params import Params
from stages.records.prompt import Prompt
from stages.sampler import Sampler
from stages.seeding import derive


class PpoPreset(Params):
    """An algorithm of the PPO family."""

    num_epochs: int = Field(gt=0)
    """Passes over each rollout batch."""
    num_minibatches: int = Field(gt=0)
    """Optimizer steps in a pass; the first of all is on policy."""
    gamma: float = Field(gt=0, le=1)
    """Discount per token."""
    lam: float = Field(ge=0, le=1)
    """Lambda of generalised advantage estimation."""
    clip_low: float = Field(ge=0, lt=1)
    """How far the ratio may fall below 1 before its gradient stops."""
    clip_high: float = Field(ge=0)
    """How far it may rise above 1."""
    clip_value: float = Field(gt=0)
    """How far a value may move in one rollout batch before its gradient stops."""
    kl_coef: float = Field(ge=0)
    """Weight of the k1 divergence from the reference, subtracted from each token's reward."""


class PpoConfig(Params):
    """Sizes of the PPO loop, whichever algorithm it runs."""

    num_steps: int = Field(gt=0)
    """Rollout batches."""
    prompts_per_step: int = Field(gt=0)
    """Prompts in a rollout batch."""
    samples_per_prompt: int = Field(gt=0)
    """Completions of each prompt; 1 in the paper, more share the reading of the prompt."""
    temperature: float = Field(gt=0)
    """Of sampling, and of every log-probability."""
    max_new_tokens: int = Field(gt=0)
    """Longest completion."""
    optim: OptimConfig
    value_optim: OptimConfig


@dataclass(frozen=True, kw_only=True)
class Models:
    """The four models of PPO; the first two are changed in place."""

    policy: PreTrainedModel
    value: PreTrainedModel
    reference: PreTrainedModel
    reward: PreTrainedModel


def train(
    models: Models,
    sampler: Sampler,
    decode: Callable[[Sequence[int]], str],
    correct: Callable[[Rollouts], list[bool]],
    prompts: Sequence[Prompt],
    schedule: Sequence[Sequence[int]],
    config: PpoConfig,
    preset: PpoPreset,
    compute: ComputeConfig,
    pad_id: int,
    seed: int,
) -> Iterator[Step]:
    """One step for each list of prompt numbers in `schedule`.

        r_t  = - kl_coef (log pi_old - log pi_ref)  + [t last] reward model
        A, R = GAE(r, V);  A whitened over the rollout batch
        policy loss = token mean of the clipped surrogate; value loss likewise, clipped

    Schulman et al. (2017); rewards as in Ziegler et al., "Fine-Tuning Language Models from
    Human Preferences" (2019), eq. 2. `correct` is the true reward: logged, never learned from.
    """
    models.policy.train()
    models.value.train()
    optimizer = adamw(models.policy, config.optim)
    value_optimizer = adamw(models.value, config.value_optim)
    per_step = preset.num_epochs * preset.num_minibatches
    for index, chosen in enumerate(schedule):
        drawn = rollout_batch.collect(
            sampler,
            decode,
            [prompts[i] for i in chosen],
            step=index,
            seed=seed,
            group_size=config.samples_per_prompt,
            temperature=config.temperature,
            max_new_tokens=config.max_new_tokens,
        )
        truth = correct(drawn)
        minibatches = partition(
            len(chosen), preset.num_minibatches, derive(seed, "minibatches", index)
        )
        experiences, rewards, measured = gather(
            models.policy, models.value, models.reference, models.reward, drawn, minibatches,
            gamma=preset.gamma, lam=preset.lam, kl_coef=preset.kl_coef,
            temperature=config.temperature, compute=compute, pad_id=pad_id,
        )  # fmt: skip
        metrics = rollout_batch.statistics(drawn, rewards, truth) | measured
        totals = {"loss/policy": 0.0, "loss/value": 0.0, "entropy": 0.0, "clip_fraction": 0.0}
        for number in range(per_step):
            minibatch = experiences[number % preset.num_minibatches]
            sums = _learn(
                models, minibatch, preset, temperature=config.temperature, on_policy=number == 0
            )
            step = (index * per_step) + number
            metrics.update(update(optimizer, config.optim, step, len(schedule) * per_step))
            value_metrics = update(
                value_optimizer, config.value_optim, step, len(schedule) * per_step
            )
            metrics["optim/value_grad_norm"] = value_metrics["optim/grad_norm"]
            for name, value in sums.items():
                totals[name] += value / per_step
        metrics.update(totals)
        metrics["tokens/trained"] = metrics["tokens/generated"] * preset.num_epochs
        yield Step(
            index=index, metrics=metrics, rows=rollout_batch.rows(drawn, index, rewards, truth)
        )


def partition(num_prompts: int, num_minibatches: int, seed: int) -> list[list[int]]:
    """Prompt numbers of each mini-batch, shuffled; a prompt's samples stay together."""
    order = np.random.default_rng(seed).permutation(num_prompts)
    return [part.tolist() for part in np.array_split(order, num_minibatches)]


def _learn(
    models: Models,
    minibatch: Sequence[Experience],
    preset: PpoPreset,
    *,
    temperature: float,
    on_policy: bool,
) -> dict[str, float]:
    """Accumulate the gradients of one mini-batch; returns its mean losses."""
    num_tokens = sum(int(part.batch.mask.sum()) for part in minibatch)
    sums: dict[str, Float[Tensor, ""]] = {}
    for part in minibatch:
        mask = part.batch.mask
        logprobs, entropies = completion_logprobs(
            models.policy, part.batch, temperature=temperature
        )
        if on_policy:
            check_on_policy(logprobs, part.old_logprobs)
        losses, clipped = clipped_surrogate(
            logprobs,
            part.old_logprobs,
            part.advantages,
            clip_low=preset.clip_low,
            clip_high=preset.clip_high,
        )
        policy_loss = token_mean(losses, mask, num_tokens=num_tokens)
        policy_loss.backward()
        value_losses = clipped_value_loss(
            values(models.value, part.batch), part.old_values, part.returns, clip=preset.clip_value
        )
        value_loss = token_mean(value_losses, mask, num_tokens=num_tokens)
        value_loss.backward()
        with torch.no_grad():
            counted = {
                "loss/policy": policy_loss,
                "loss/value": value_loss,
                "entropy": masked_sum(entropies, mask) / num_tokens,
                "clip_fraction": masked_sum(clipped.float(), mask) / num_tokens,
            }
            for name, value in counted.items():
                sums[name] = sums.get(name, torch.zeros(())) + value.detach().cpu()
    return {name: value.item() for name, value in sums.items()}
