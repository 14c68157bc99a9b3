"""Group-relative policy optimisation: sample a group for each prompt, learn from its spread."""

from collections.abc import Callable, Iterator, Sequence

import torch
from pydantic import Field
from transformers import PreTrainedModel

from stages.algorithms import kl
from stages.algorithms.aggregation import sequence_mean
from stages.algorithms.group_advantage import group_zscore, without_signal
from stages.algorithms.losses.clipped_surrogate import clipped_surrogate
from stages.algorithms.masking import masked_sum
from stages.loops import rollouts as rollout_batch
from stages.loops.old_logprobs import check_on_policy, frozen_logprobs
from stages.loops.rollouts import Rollouts
from stages.loops.step import Step
from stages.models.batch import micro_batches
from stages.models.device import ComputeConfig
from stages.models.policy import completion_logprobs
from stages.optim import OptimConfig, adamw, update
from stages.params import Params
from stages.records.prompt import Prompt
from stages.sampler import Sampler


class GroupRlPreset(Params):
    """An algorithm of the group-relative family."""

    num_updates: int = Field(gt=0)
    """Optimizer steps on each rollout batch; the first is on policy."""
    clip_low: float = Field(ge=0, lt=1)
    """How far the ratio may fall below 1 before its gradient stops."""
    clip_high: float = Field(ge=0)
    """How far it may rise above 1."""
    kl_coef: float = Field(ge=0)
    """Weight of the k3 divergence from the reference in the loss; 0: no reference is computed."""
    advantage_ddof: int = Field(ge=0)
    """n - ddof divides the group's variance."""
    advantage_eps: float = Field(gt=0)
    """Added to the group's standard deviation."""


class GroupRlConfig(Params):
    """Sizes of the group-relative loop, whichever algorithm it runs."""

    num_steps: int = Field(gt=0)
    """Rollout batches."""
    prompts_per_step: int = Field(gt=0)
    """Prompts in a rollout batch."""
    group_size: int = Field(gt=1)
    """Completions of each prompt."""
    temperature: float = Field(gt=0)
    """Of sampling, and of every log-probability."""
    max_new_tokens: int = Field(gt=0)
    """Longest completion."""
    optim: OptimConfig


def train(
    policy: PreTrainedModel,
    reference: PreTrainedModel | None,
    sampler: Sampler,
    decode: Callable[[Sequence[int]], str],
    reward: Callable[[Rollouts], Sequence[float]],
    correct: Callable[[Rollouts], list[bool]],
    prompts: Sequence[Prompt],
    schedule: Sequence[Sequence[int]],
    config: GroupRlConfig,
    preset: GroupRlPreset,
    compute: ComputeConfig,
    pad_id: int,
    seed: int,
) -> Iterator[Step]:
    """One step for each list of prompt numbers in `schedule`; `policy` is changed in place.

        A_ij = (r_ij - mean_j r_i) / (std_j r_i + eps)
        loss = sequence mean of [clipped surrogate(A) + kl_coef k3(policy, reference)]

    Shao et al., "DeepSeekMath" (2024), eq. 3 and 4. Groups of equal rewards have no
    advantage and are left out of the batches: they cost no forward pass, still count
    in the normaliser, and get no KL term (a departure where kl_coef > 0).
    """
    policy.train()
    optimizer = adamw(policy, config.optim)
    num_updates = len(schedule) * preset.num_updates
    for index, chosen in enumerate(schedule):
        drawn = rollout_batch.collect(
            sampler,
            decode,
            [prompts[i] for i in chosen],
            step=index,
            seed=seed,
            group_size=config.group_size,
            temperature=config.temperature,
            max_new_tokens=config.max_new_tokens,
        )
        rewards = torch.tensor(reward(drawn), dtype=torch.float32)
        truth = correct(drawn)
        grouped = rewards.view(-1, config.group_size)
        advantages = group_zscore(
            grouped, ddof=preset.advantage_ddof, eps=preset.advantage_eps
        ).view(-1)
        silent = without_signal(grouped)
        groups = rollout_batch.groups(drawn, ~silent, compute.row_tokens)
        batches = list(micro_batches(groups, compute, pad_id, policy.device))
        metrics = rollout_batch.statistics(drawn, rewards, truth)
        metrics["reward/groups_without_signal"] = silent.float().mean().item()
        num_tokens = sum(int(batch.mask.sum()) for batch in batches)
        metrics["tokens/trained"] = num_tokens * preset.num_updates
        old = frozen_logprobs(policy, batches, temperature=config.temperature)
        metrics["sampling/logprob_gap"] = rollout_batch.sampler_gap(drawn, batches, old)
        ref = old
        if reference is not None:
            ref = frozen_logprobs(reference, batches, temperature=config.temperature)
        for number in range(preset.num_updates if batches else 0):
            totals: dict[str, float] = {}
            for batch, old_logprobs, ref_logprobs in zip(batches, old, ref, strict=True):
                logprobs, entropies = completion_logprobs(
                    policy, batch, temperature=config.temperature
                )
                if number == 0:
                    check_on_policy(logprobs, old_logprobs)
                weights = advantages[batch.indices].to(logprobs.device)[:, None]
                losses, clipped = clipped_surrogate(
                    logprobs,
                    old_logprobs,
                    weights.expand_as(logprobs),
                    clip_low=preset.clip_low,
                    clip_high=preset.clip_high,
                )
                if reference is not None:
                    losses = losses + preset.kl_coef * kl.k3(logprobs, ref_logprobs)
                loss = sequence_mean(losses, batch.mask, num_sequences=len(drawn.samples))
                loss.backward()
                counted = {
                    "loss/policy": loss.detach(),
                    "entropy": masked_sum(entropies, batch.mask),
                    "clip_fraction": masked_sum(clipped.float(), batch.mask),
                }
                if reference is not None:
                    with torch.no_grad():
                        counted["kl/k1"] = masked_sum(kl.k1(logprobs, ref_logprobs), batch.mask)
                        counted["kl/k3"] = masked_sum(kl.k3(logprobs, ref_logprobs), batch.mask)
                for name, value in counted.items():
                    totals[name] = totals.get(name, 0.0) + value.item()
            loss_value = totals.pop("loss/policy")
            metrics["loss/policy"] = loss_value
            metrics.update({n: v / num_tokens for n, v in totals.items()})
            step = index * preset.num_updates + number
            metrics.update(update(optimizer, config.optim, step, num_updates))
        yield Step(
            index=index, metrics=metrics, rows=rollout_batch.rows(drawn, index, rewards, truth)
        )
