"""Policy optimisation without a value model: sample groups, learn from what sets them apart.

GRPO and its relatives (DAPO, Dr. GRPO, GSPO, CISPO, RLOO, ReMax, REINFORCE++) differ in the
choices of a `GroupRlPreset` and in nothing else.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from stages.algorithms.length_and_repetition import soft_overlong
from stages.loops import advantages, divergence, rl_loop
from stages.loops import rollouts as rollout_batch
from stages.loops.advantages import Scored
from stages.loops.epochs import Schedule
from stages.loops.group_preset import GroupRlConfig, GroupRlPreset, check
from stages.loops.group_sampling import Shaped
from stages.loops.minibatches import partition, split
from stages.loops.rl_loop import Experience
from stages.loops.rollouts import Actor, Rollouts, Task
from stages.loops.step import Step
from stages.models.device import ComputeConfig
from stages.seeding import derive


def train(
    actor: Actor,
    task: Task,
    schedule: Schedule,
    config: GroupRlConfig,
    preset: GroupRlPreset,
    compute: ComputeConfig,
    seed: int,
) -> Iterator[Step]:
    """One step for each list of prompt numbers in `schedule`; the policy is changed in place.

    Each list holds `group_sampling.num_prompts(preset.sampling, config.prompts_per_step)` prompts.
    See `gather` for rewards and advantages, and `rl_loop.train` for the rest.

    Raises:
        ValueError: what `check` raises; the preset penalises a divergence and there is no
            reference; or see `rl_loop.train`.
    """
    check(config, preset)
    if actor.reference is None and (preset.kl.kind != "none" or preset.kl_budget is not None):
        raise ValueError("this preset needs the divergence from a reference: give one, or kl: none")
    collect = partial(gather, actor, task, config, preset, compute, seed)
    return rl_loop.train(actor, collect, schedule, config, preset, compute)


def gather(
    actor: Actor,
    task: Task,
    config: GroupRlConfig,
    preset: GroupRlPreset,
    compute: ComputeConfig,
    seed: int,
    step: int,
    chosen: Sequence[int],
    kl_coef: float,
) -> Experience:
    """Sample for the prompts with numbers `chosen`, judge, and compare within groups.

    A completion whose advantage is 0 costs nothing, where nothing else gives it a gradient.
    """

    def collect(numbers: Sequence[int], group_size: int, part: int) -> Rollouts:
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

    judge = partial(shape, task, config, preset)
    collected = preset.sampling(
        draw=collect,
        judge=judge,
        chosen=chosen,
        prompts_per_step=config.prompts_per_step,
        group_size=config.group_size,
    )
    drawn, shaped, used = collected.rollouts, collected.shaped, collected.used
    correct = task.verdicts(drawn)
    metrics = rollout_batch.statistics(drawn, shaped.rewards(), correct, shaped.judged)
    if task.correct is None:
        del metrics["reward/accuracy"]
    metrics["sampling/rounds"] = collected.num_rounds
    metrics["sampling/used"] = used.float().mean().item()
    groups = torch.tensor(drawn.groups)
    ref_logprobs, penalties = None, torch.zeros(drawn.mask().shape)
    if actor.reference is not None:
        ref_logprobs = divergence.reference_logprobs(
            actor.reference, drawn, compute, actor.pad_id, config.temperature
        )
        metrics |= divergence.from_reference(drawn, ref_logprobs)
        penalties = divergence.penalties(preset.kl, kl_coef, drawn, ref_logprobs)

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

    found = advantages.of_tokens(
        preset.advantage,
        Scored(
            end_rewards=shaped.end_rewards,
            penalties=penalties,
            mask=drawn.mask(),
            groups=groups,
            counted=shaped.in_baseline & used,
            greedy_rewards=greedy_rewards,
            step_rewards=shaped.judged.step_rewards,
            step_ends=shaped.judged.step_ends,
        ),
    )
    moved = (found != 0).any(1)
    metrics["advantage/zero_share"] = (~moved).float().mean().item()
    learned = used & preset.truncation(truncated=drawn.truncated()).in_loss
    prompts = groups[used].unique().tolist()
    order = partition(len(prompts), preset.num_minibatches, derive(seed, "minibatches", step))
    minibatches = split(
        drawn,
        used=used,
        learned=learned,
        computed=learned if preset.dense() else learned & moved,
        parts=[[prompts[i] for i in numbers] for numbers in order],
        max_length=config.max_new_tokens,
        compute=compute,
        pad_id=actor.pad_id,
        device=actor.policy.device,
    )
    return Experience(
        rollouts=drawn,
        rewards=shaped.rewards(),
        correct=correct,
        minibatches=minibatches,
        advantages=found,
        ref_logprobs=ref_logprobs,
        metrics=metrics,
    )


def shape(task: Task, config: GroupRlConfig, preset: GroupRlPreset, drawn: Rollouts) -> Shaped:
    """The task's rewards, lowered for completions that were cut or come near the length limit."""
    treatment, judged = preset.truncation(truncated=drawn.truncated()), task.reward(drawn)
    end_rewards = torch.tensor(judged.totals, dtype=torch.float32) - treatment.penalties
    if preset.overlong is not None:
        end_rewards = end_rewards + preset.overlong.penalty * soft_overlong(
            drawn.mask().sum(1), max_length=config.max_new_tokens, buffer=preset.overlong.buffer
        )
    return Shaped(judged=judged, end_rewards=end_rewards, in_baseline=treatment.in_baseline)
