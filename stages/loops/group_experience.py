"""One rollout batch of a method without a value model: sampled, judged, turned into advantages."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.soft_overlong import soft_overlong
from stages.loops import measured
from stages.loops import rollouts as rollout_batch
from stages.loops.actor import Actor, Task
from stages.loops.choices.advantage import Advantage, Scored
from stages.loops.choices.kl_penalty import KlPenalty
from stages.loops.choices.sampling import Sampling
from stages.loops.choices.truncation import Truncation
from stages.loops.rollouts import Rollouts
from stages.models.device import ComputeConfig
from stages.params import Params


class Overlong(Params):
    """DAPO's soft punishment of completions that come near the length limit."""

    buffer: int = Field(gt=0)
    """Tokens before the limit over which the punishment grows."""
    penalty: float = Field(gt=0)
    """Subtracted from the reward of a completion at the limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How the completions of a step are drawn and judged."""

    advantage: Advantage
    sampling: Sampling
    truncation: Truncation
    overlong: Overlong | None
    kl: KlPenalty
    prompts_per_step: int
    group_size: int
    temperature: float
    max_new_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupExperience:
    """All completions of a step, whether used or not; grids are laid out as `rollouts.mask()`."""

    rollouts: Rollouts
    rewards: Float[Tensor, " batch"]
    correct: list[bool]
    used: Bool[Tensor, " batch"]
    """Which completions the step is a mean over."""
    learned: Bool[Tensor, " batch"]
    """Of those, the ones whose tokens count in the loss."""
    advantages: Float[Tensor, "batch token"]
    ref_logprobs: Float[Tensor, "batch token"] | None
    metrics: dict[str, int | float]


def gather(
    actor: Actor,
    task: Task,
    plan: Plan,
    chosen: Sequence[int],
    compute: ComputeConfig,
    *,
    kl_coef: float,
    step: int,
    seed: int,
) -> GroupExperience:
    """Sample for the prompts with numbers `chosen`, judge, and compare within groups."""

    def draw(numbers: Sequence[int], group_size: int, part: int) -> Rollouts:
        return rollout_batch.collect(
            actor.sampler,
            actor.decode,
            [task.prompts[i] for i in numbers],
            step=step,
            seed=seed,
            group_size=group_size,
            temperature=plan.temperature,
            max_new_tokens=plan.max_new_tokens,
            part=part,
        )

    def judge(drawn: Rollouts) -> tuple[Float[Tensor, " batch"], Bool[Tensor, " batch"]]:
        truncated = drawn.truncated()
        rewards = torch.tensor(task.reward(drawn), dtype=torch.float32)
        rewards = plan.truncation.rewards(rewards, truncated)
        if plan.overlong is not None:
            rewards = rewards + plan.overlong.penalty * soft_overlong(
                drawn.mask().sum(1), max_length=plan.max_new_tokens, buffer=plan.overlong.buffer
            )
        return rewards, plan.truncation.in_baseline(truncated)

    collected = plan.sampling.collect(draw, judge, chosen, plan.prompts_per_step, plan.group_size)
    drawn = collected.rollouts
    correct = task.verdicts(drawn)
    metrics = rollout_batch.statistics(drawn, collected.rewards, correct)
    if task.correct is None:
        del metrics["reward/accuracy"]
    metrics["sampling/rounds"] = collected.num_rounds
    metrics["sampling/used"] = collected.used.float().mean().item()
    groups = torch.tensor(drawn.groups)
    ref_logprobs, penalties = None, torch.zeros(drawn.mask().shape)
    if actor.reference is not None:
        ref_logprobs = measured.reference_logprobs(
            actor.reference, drawn, compute, actor.pad_id, plan.temperature
        )
        metrics |= measured.divergence(drawn, ref_logprobs)
        penalties = measured.penalties(plan.kl, kl_coef, drawn, ref_logprobs)

    def greedy_rewards() -> Float[Tensor, " batch"]:
        greedy = rollout_batch.collect(
            actor.sampler,
            actor.decode,
            drawn.prompts,
            step=step,
            seed=seed,
            group_size=1,
            temperature=0.0,
            max_new_tokens=plan.max_new_tokens,
        )
        metrics["tokens/generated"] += int(greedy.mask().sum())
        return judge(greedy)[0][groups]

    advantages = plan.advantage(
        Scored(
            rewards=collected.rewards,
            penalties=penalties,
            mask=drawn.mask(),
            groups=groups,
            counted=collected.in_baseline & collected.used,
            greedy_rewards=greedy_rewards,
        )
    )
    silent = ~(advantages != 0).any(1)
    metrics["advantage/zero_share"] = silent.float().mean().item()
    return GroupExperience(
        rollouts=drawn,
        rewards=collected.rewards,
        correct=correct,
        used=collected.used,
        learned=collected.used & plan.truncation.in_loss(drawn.truncated()),
        advantages=advantages,
        ref_logprobs=ref_logprobs,
        metrics=metrics,
    )
