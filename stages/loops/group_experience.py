"""One rollout batch of a method without a value model: sampled, judged, turned into advantages."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms.soft_overlong import soft_overlong
from stages.loops import measured
from stages.loops import rollouts as rollout_batch
from stages.loops.actor import Actor, Task
from stages.loops.choices.sampling import Shaped
from stages.loops.choices.scored import Scored
from stages.loops.group_preset import GroupRlConfig, GroupRlPreset
from stages.loops.rollouts import Rollouts
from stages.models.device import ComputeConfig


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
    config: GroupRlConfig,
    preset: GroupRlPreset,
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
            temperature=config.temperature,
            max_new_tokens=config.max_new_tokens,
            part=part,
        )

    def judge(drawn: Rollouts) -> Shaped:
        truncated = drawn.truncated()
        judged = task.reward(drawn)
        totals = torch.tensor(judged.totals, dtype=torch.float32)
        end_rewards = preset.truncation.rewards(totals, truncated)
        if preset.overlong is not None:
            end_rewards = end_rewards + preset.overlong.penalty * soft_overlong(
                drawn.mask().sum(1), max_length=config.max_new_tokens, buffer=preset.overlong.buffer
            )
        in_baseline = preset.truncation.in_baseline(truncated)
        return Shaped(judged=judged, end_rewards=end_rewards, in_baseline=in_baseline)

    collected = preset.sampling.collect(
        draw, judge, chosen, config.prompts_per_step, config.group_size
    )
    drawn, shaped = collected.rollouts, collected.shaped
    correct = task.verdicts(drawn)
    metrics = rollout_batch.statistics(drawn, shaped.rewards(), correct, shaped.judged)
    if task.correct is None:
        del metrics["reward/accuracy"]
    metrics["sampling/rounds"] = collected.num_rounds
    metrics["sampling/used"] = collected.used.float().mean().item()
    groups = torch.tensor(drawn.groups)
    ref_logprobs, penalties = None, torch.zeros(drawn.mask().shape)
    if actor.reference is not None:
        ref_logprobs = measured.reference_logprobs(
            actor.reference, drawn, compute, actor.pad_id, config.temperature
        )
        metrics |= measured.divergence(drawn, ref_logprobs)
        penalties = measured.penalties(preset.objective.kl, kl_coef, drawn, ref_logprobs)

    def greedy_rewards() -> Float[Tensor, " batch"]:
        greedy = rollout_batch.collect(
            actor.sampler,
            actor.decode,
            drawn.prompts,
            step=step,
            seed=seed,
            group_size=1,
            temperature=0.0,
            max_new_tokens=config.max_new_tokens,
        )
        metrics["tokens/generated"] += int(greedy.mask().sum())
        shaped_greedy = judge(greedy)
        for name, count in rollout_batch.work_done(greedy, shaped_greedy.judged).items():
            metrics[name] += count
        return shaped_greedy.rewards()[groups]

    advantages = preset.advantage(
        Scored(
            end_rewards=shaped.end_rewards,
            penalties=penalties,
            mask=drawn.mask(),
            groups=groups,
            counted=shaped.in_baseline & collected.used,
            greedy_rewards=greedy_rewards,
            step_rewards=shaped.judged.step_rewards,
            step_ends=shaped.judged.step_ends,
        )
    )
    silent = ~(advantages != 0).any(1)
    metrics["advantage/zero_share"] = silent.float().mean().item()
    return GroupExperience(
        rollouts=drawn,
        rewards=shaped.rewards(),
        correct=correct,
        used=collected.used,
        learned=collected.used & preset.truncation.in_loss(drawn.truncated()),
        advantages=advantages,
        ref_logprobs=ref_logprobs,
        metrics=metrics,
    )
