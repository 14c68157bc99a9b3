"""Policy optimisation without a value model: sample groups, learn from what sets them apart.

GRPO and its relatives (DAPO, Dr. GRPO, GSPO, CISPO, RLOO, ReMax, REINFORCE++) differ in the
choices of a `GroupRlPreset` and in nothing else.
"""

from collections.abc import Iterator

import torch

from stages.loops import group_experience, moved, policy_work
from stages.loops import rollouts as rollout_batch
from stages.loops.actor import Actor, Task
from stages.loops.group_experience import GroupExperience
from stages.loops.group_preset import GroupRlConfig, GroupRlPreset, check
from stages.loops.minibatches import Minibatch, partition, split
from stages.loops.objective import Weights, accumulate, make_parts
from stages.loops.pace import Pace, Schedule
from stages.loops.step import Step
from stages.models.device import ComputeConfig
from stages.optim import adamw, update
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

    Each list holds `preset.sampling.num_prompts(config.prompts_per_step)` prompts. The
    gradient is that of `objective.accumulate`. With a `token_budget`, training ends with the step
    that reaches it (`pace`).

    Raises:
        ValueError: what `check` raises; the preset penalises a divergence and there is no
            reference; all completions of several steps were cut; the sampler's log-probs are not
            the trainer's.
    """
    check(config, preset)
    objective = preset.objective
    if actor.reference is None and (objective.kl.kind != "none" or preset.kl_budget is not None):
        raise ValueError("this preset needs the divergence from a reference: give one, or kl: none")
    actor.policy.train()
    optimizer = adamw(actor.policy, config.optim)
    weights, num_cut_steps = Weights.start(objective), 0
    per_step = preset.num_epochs * preset.num_minibatches
    pace = Pace(schedule=schedule)
    for index, chosen in enumerate(schedule):
        experience = group_experience.gather(
            actor, task, config, preset, chosen, compute, kl_coef=weights.kl, step=index, seed=seed
        )
        num_cut_steps = rollout_batch.check_some_ended(experience.rollouts, num_cut_steps)
        metrics = experience.metrics
        minibatches = _minibatches(
            actor, experience, preset, config, compute, derive(seed, "minibatches", index)
        )
        reuse = per_step > 1 or objective.old_kl is not None
        parts = make_parts(
            actor.policy,
            minibatches,
            rollouts=experience.rollouts,
            advantages=experience.advantages,
            ref_logprobs=experience.ref_logprobs,
            correct=experience.correct,
            temperature=config.temperature,
            reuse=reuse,
        )
        metrics["tokens/trained"] = preset.num_epochs * sum(
            int(part.batch.mask.sum()) for minibatch in parts for part in minibatch
        )
        pace.spend(metrics)
        total = pace.num_updates(index, per_step)
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
            metrics |= update(optimizer, config.optim, step, total)
        metrics |= policy_work.of_step(
            parts,
            experience.rollouts,
            compute,
            objective,
            num_epochs=preset.num_epochs,
            reuse=reuse,
            has_reference=actor.reference is not None,
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
        far = preset.kl_budget is not None and metrics["kl/sequence"] > preset.kl_budget
        if far or pace.over():
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
