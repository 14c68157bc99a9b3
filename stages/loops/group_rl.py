"""Policy optimisation without a value model: sample groups, learn from what sets them apart.

GRPO and its relatives (DAPO, Dr. GRPO, GSPO, CISPO, RLOO, ReMax, REINFORCE++) differ in the
choices of a `GroupRlPreset` and in nothing else.
"""

from collections.abc import Iterator, Sequence

import torch
from pydantic import Field

from stages.loops import group_experience, moved
from stages.loops import rollouts as rollout_batch
from stages.loops.actor import Actor, Task
from stages.loops.choices.advantage import Advantage
from stages.loops.choices.sampling import Sampling
from stages.loops.choices.truncation import Truncation
from stages.loops.group_experience import GroupExperience, Overlong, Plan
from stages.loops.minibatches import Minibatch, partition, split
from stages.loops.objective import ObjectiveConfig, Weights, accumulate, make_parts
from stages.loops.step import Step
from stages.models.device import ComputeConfig
from stages.optim import OptimConfig, adamw, update
from stages.params import Params
from stages.seeding import derive


class GroupRlConfig(Params):
    """Sizes and rates, the same for every preset."""

    num_steps: int = Field(gt=0)
    """Rollout batches."""
    prompts_per_step: int = Field(gt=0)
    """Prompts that a rollout batch learns from."""
    group_size: int = Field(gt=0)
    """Completions of each prompt."""
    temperature: float = Field(gt=0)
    """Of sampling, and of every log-probability."""
    max_new_tokens: int = Field(gt=0)
    """Longest completion."""
    optim: OptimConfig


class GroupRlPreset(Params):
    """Whose variant it is: every choice in which the methods of this family differ."""

    advantage: Advantage
    objective: ObjectiveConfig
    sampling: Sampling
    truncation: Truncation
    overlong: Overlong | None
    num_epochs: int = Field(gt=0)
    """Passes over each rollout batch (mu); old log-probs are computed once."""
    num_minibatches: int = Field(gt=0)
    """Optimizer steps in a pass; the first of all is on policy."""
    kl_budget: float | None = Field(gt=0)
    """Training ends when a completion's divergence from the reference exceeds it, in nats."""


def check(config: GroupRlConfig, preset: GroupRlPreset, *, normalised: bool = False) -> None:
    """Refuse what the preset cannot work with, before anything is computed.

    Args:
        config: sizes and rates.
        preset: the method.
        normalised: whether the parts of the reward are normalised over a step's groups.

    Raises:
        ValueError: saying which number to change.
    """
    if config.group_size < preset.advantage.least_group_size:
        raise ValueError(
            f"group_size is {config.group_size}; advantage {preset.advantage.kind} compares the "
            f"completions of a prompt with each other: at least {preset.advantage.least_group_size}"
        )
    if preset.num_minibatches > config.prompts_per_step:
        raise ValueError(
            f"num_minibatches {preset.num_minibatches} is more than prompts_per_step "
            f"{config.prompts_per_step}: some would be empty"
        )
    if preset.overlong is not None and preset.overlong.buffer > config.max_new_tokens:
        raise ValueError(
            f"overlong.buffer {preset.overlong.buffer} is more than max_new_tokens "
            f"{config.max_new_tokens}: it is the last stretch before that limit"
        )
    preset.sampling.check(config.group_size)
    if normalised:
        check_normalised(preset)


def check_normalised(preset: GroupRlPreset) -> None:
    """Refuse what makes nothing of rewards whose parts are normalised over a step's groups.

    Raises:
        ValueError: they would be normalised again, or over completions that are then left out.
    """
    fits = preset.advantage.kind == "group_centred" and preset.sampling.kind == "fixed"
    if not fits or preset.truncation.kind == "exclude":
        raise ValueError(
            "a reward with combine: normalise is an advantage already (GDPO): it needs a preset "
            "with advantage group_centred, which leaves it as it is, sampling fixed, and "
            "truncation penalise or mask; dr_grpo is one"
        )


def train(
    actor: Actor,
    task: Task,
    schedule: Sequence[Sequence[int]],
    config: GroupRlConfig,
    preset: GroupRlPreset,
    compute: ComputeConfig,
    seed: int,
) -> Iterator[Step]:
    """One step for each list of prompt numbers in `schedule`; the policy is changed in place.

    Each list holds `preset.sampling.num_prompts(config.prompts_per_step)` prompts. The
    gradient is that of `objective.accumulate`.

    Raises:
        ValueError: what `check` raises; the preset penalises a divergence and there is no
            reference; all completions of several steps were cut; the sampler's log-probs are not
            the trainer's.
    """
    check(config, preset)
    objective = preset.objective
    if actor.reference is None and (objective.kl.kind != "none" or preset.kl_budget is not None):
        raise ValueError("this preset needs the divergence from a reference: give one, or kl: none")
    plan = Plan(
        advantage=preset.advantage,
        sampling=preset.sampling,
        truncation=preset.truncation,
        overlong=preset.overlong,
        kl=objective.kl,
        prompts_per_step=config.prompts_per_step,
        group_size=config.group_size,
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
    )
    actor.policy.train()
    optimizer = adamw(actor.policy, config.optim)
    weights, num_cut_steps = Weights.start(objective), 0
    per_step = preset.num_epochs * preset.num_minibatches
    for index, chosen in enumerate(schedule):
        experience = group_experience.gather(
            actor, task, plan, chosen, compute, kl_coef=weights.kl, step=index, seed=seed
        )
        num_cut_steps = rollout_batch.check_some_ended(experience.rollouts, num_cut_steps)
        metrics = experience.metrics
        minibatches = _minibatches(
            actor, experience, preset, config, compute, derive(seed, "minibatches", index)
        )
        parts = make_parts(
            actor.policy,
            minibatches,
            rollouts=experience.rollouts,
            advantages=experience.advantages,
            ref_logprobs=experience.ref_logprobs,
            correct=experience.correct,
            temperature=config.temperature,
            reuse=per_step > 1 or objective.old_kl is not None,
        )
        num_updates = preset.num_epochs * sum(1 for minibatch in parts if minibatch)
        for number in range(per_step):
            place = number % preset.num_minibatches
            if not parts[place]:
                continue
            found = accumulate(
                actor.policy,
                actor.reference,
                parts[place],
                objective,
                minibatches[place].counts,
                weights,
                temperature=config.temperature,
                on_policy=number == 0,
            )
            rollout_batch.check_sampler(found["sampling/logprob_gap"])
            for name, mean in found.items():
                metrics[name] = metrics.get(name, 0.0) + mean / num_updates
            step = index * per_step + number
            metrics |= update(optimizer, config.optim, step, len(schedule) * per_step)
        metrics["tokens/trained"] = preset.num_epochs * sum(
            int(part.batch.mask.sum()) for minibatch in parts for part in minibatch
        )
        metrics["kl/coef"] = weights.kl
        if objective.old_kl is not None:
            metrics["kl/old_after"] = moved.old_kl(
                actor.policy, parts, temperature=config.temperature
            )
        weights = weights.after(objective, metrics, len(experience.rewards))
        yield Step(
            index=index,
            metrics=metrics,
            rows=rollout_batch.rows(
                experience.rollouts, index, experience.rewards, experience.correct
            ),
        )
        if preset.kl_budget is not None and metrics["kl/sequence"] > preset.kl_budget:
            return


def _minibatches(
    actor: Actor,
    experience: GroupExperience,
    preset: GroupRlPreset,
    config: GroupRlConfig,
    compute: ComputeConfig,
    seed: int,
) -> list[Minibatch]:
    """A completion whose advantage is 0 costs nothing, where nothing else gives it a gradient."""
    computed = experience.learned
    if not preset.objective.dense():
        computed = computed & (experience.advantages != 0).any(1)
    prompts = torch.tensor(experience.rollouts.groups)[experience.used].unique().tolist()
    order = partition(len(prompts), preset.num_minibatches, seed)
    return split(
        experience.rollouts,
        used=experience.used,
        learned=experience.learned,
        computed=computed,
        parts=[[prompts[i] for i in numbers] for numbers in order],
        max_length=config.max_new_tokens,
        compute=compute,
        pad_id=actor.pad_id,
        device=actor.policy.device,
    )
