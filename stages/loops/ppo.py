"""Proximal policy optimisation with a value model."""

from collections.abc import Iterator

from pydantic import Field
from torch import nn

from stages.loops import critic, moved, policy_work
from stages.loops import experience as ppo_experience
from stages.loops import rollouts as rollout_batch
from stages.loops.actor import Actor, Task
from stages.loops.checkpoints import Kept
from stages.loops.choices.lam import Lambda
from stages.loops.choices.truncation import Truncation
from stages.loops.critic import ValueConfig
from stages.loops.experience import Plan
from stages.loops.objective import ObjectiveConfig, Weights, accumulate, make_parts
from stages.loops.pace import Pace, Schedule
from stages.loops.step import Step
from stages.models.device import ComputeConfig
from stages.optim import OptimConfig, adamw, update
from stages.params import Params
from stages.rewards.reward_file import RewardFile


class PpoConfig(Kept):
    """Sizes and rates, the same for every preset."""

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


class PpoPreset(Params):
    """Whose variant it is."""

    gamma: float = Field(gt=0, le=1)
    """Discount per token."""
    lam: Lambda
    """Lambda of generalised advantage estimation, for the policy's advantages."""
    value_lam: float = Field(ge=0, le=1)
    """Lambda of the returns that the value model learns; VAPO: 1."""
    whiten_eps: float | None = Field(gt=0)
    """Added to the variance when advantages are whitened over the batch; null: they are not."""
    objective: ObjectiveConfig
    value: ValueConfig
    truncation: Truncation
    """`mask` and `exclude` are the same here: the value model is the baseline."""
    num_epochs: int = Field(gt=0)
    """Passes over each rollout batch."""
    num_minibatches: int = Field(gt=0)
    """Optimizer steps in a pass; the first of all is on policy."""
    kl_budget: float | None = Field(gt=0)
    """Training ends when a completion's divergence from the reference exceeds it, in nats."""
    token_budget: int | None = Field(gt=0)
    """Tokens, generated and trained on, in place of `num_steps` (see `pace`); null: none."""


def check(config: PpoConfig, preset: PpoPreset) -> None:
    """Refuse sizes that the preset cannot work with, before anything is computed.

    Raises:
        ValueError: saying which number to change.
    """
    if preset.num_minibatches > config.prompts_per_step:
        raise ValueError(
            f"num_minibatches {preset.num_minibatches} is more than prompts_per_step "
            f"{config.prompts_per_step}: some would be empty"
        )


def check_reward(config: PpoConfig, preset: PpoPreset, reward: RewardFile) -> None:
    """Refuse a reward that the preset makes nothing of.

    Raises:
        ValueError: saying what it needs.
    """
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
    schedule: Schedule,
    config: PpoConfig,
    preset: PpoPreset,
    compute: ComputeConfig,
    seed: int,
) -> Iterator[Step]:
    """One step for each list of prompt numbers in `schedule`; policy and value model change.

    See `experience.gather` for rewards, advantages and returns, and `objective.accumulate`
    for the policy's loss. The value loss is a token mean. With a budget of tokens, training
    ends with the step that reaches it (`pace`).

    Raises:
        ValueError: more mini-batches than prompts; no reference; all completions of several
            steps were cut; the sampler's log-probs are not the trainer's.
    """
    check(config, preset)
    if actor.reference is None:
        raise ValueError("PPO measures the divergence from a reference: give one")
    plan = Plan(
        gamma=preset.gamma,
        lam=preset.lam,
        value_lam=preset.value_lam,
        whiten_eps=preset.whiten_eps,
        truncation=preset.truncation,
        kl=preset.objective.kl,
        samples_per_prompt=config.samples_per_prompt,
        num_minibatches=preset.num_minibatches,
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
    )
    actor.policy.train()
    value.train()
    optimizer = adamw(actor.policy, config.optim)
    value_optimizer = adamw(value, config.value_optim)
    weights, num_cut_steps, pace = Weights.start(preset.objective), 0, Pace(schedule=schedule)
    per_step = preset.num_epochs * preset.num_minibatches
    for index, chosen in enumerate(schedule):
        gathered = ppo_experience.gather(
            actor, value, task, plan, chosen, compute, kl_coef=weights.kl, step=index, seed=seed
        )
        num_cut_steps = rollout_batch.check_some_ended(gathered.rollouts, num_cut_steps)
        metrics = gathered.metrics
        learns = index >= preset.value.warmup_steps
        reuse = learns and (per_step > 1 or preset.objective.old_kl is not None)
        parts = make_parts(
            actor.policy,
            gathered.minibatches,
            rollouts=gathered.rollouts,
            advantages=gathered.advantages,
            ref_logprobs=gathered.ref_logprobs,
            correct=gathered.correct,
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
            counts = gathered.minibatches[place].counts
            if not parts[place]:
                continue
            step = index * per_step + number
            loss = critic.learn(value, gathered.value_parts[place], counts.num_tokens, preset.value)
            metrics["loss/value"] = metrics.get("loss/value", 0.0) + loss / num_updates
            if learns:
                found = accumulate(
                    actor.policy,
                    actor.reference,
                    parts[place],
                    preset.objective,
                    counts,
                    weights,
                    temperature=config.temperature,
                    on_policy=number == 0,
                )
                rollout_batch.check_sampler(found["sampling/logprob_gap"])
                for name, mean in found.items():
                    metrics[name] = metrics.get(name, 0.0) + mean / num_updates
                metrics |= update(optimizer, config.optim, step, total)
            optimizer.zero_grad(set_to_none=True)
            updated = update(value_optimizer, config.value_optim, step, total)
            metrics["optim/value_grad_norm"] = updated["optim/grad_norm"]
        metrics |= policy_work.of_step(
            parts,
            gathered.rollouts,
            compute,
            preset.objective,
            num_epochs=preset.num_epochs,
            learns=learns,
            reuse=reuse,
            has_value=True,
        )
        metrics["kl/coef"] = weights.kl
        if learns:
            if preset.objective.old_kl is not None:
                metrics["kl/old_after"] = moved.old_kl(
                    actor.policy, parts, temperature=config.temperature
                )
            weights = weights.after(preset.objective, metrics, len(gathered.rewards))
        yield Step(
            index=index,
            metrics=metrics,
            rows=rollout_batch.rows(gathered.rollouts, index, gathered.rewards, gathered.correct),
        )
        far = preset.kl_budget is not None and metrics["kl/sequence"] > preset.kl_budget
        if far or pace.over():
            return
