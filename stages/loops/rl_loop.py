"""Reinforcement learning step by step: the part that PPO and the group methods share.

Each step samples and judges completions (`gather`, which is the method's own), then takes an
optimizer step for each mini-batch of them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.choice import Choice, OneOf
from stages.loops import policy_gradient, work
from stages.loops import rollouts as rollout_batch
from stages.loops.critic import Critic
from stages.loops.divergence import FullKlInLoss
from stages.loops.epochs import Pace, Schedule
from stages.loops.objective import ObjectiveConfig, Part, Weights
from stages.loops.policy_gradient import Experience
from stages.loops.rollouts import Actor
from stages.loops.work import Step
from stages.models.device import ComputeConfig
from stages.optim import OptimConfig, adamw, update
from stages.params import Params

Flags = Bool[Tensor, " batch"]


class Treatment(NamedTuple):
    """What is subtracted from rewards, and which completions make the baseline and the loss."""

    penalties: Float[Tensor, " batch"]
    in_baseline: Flags
    in_loss: Flags


def penalise(truncated: Flags, *, penalty: float) -> Treatment:
    """Learned from like any other, its reward lowered; at penalty 0 it is judged by its text."""
    every = torch.ones_like(truncated)
    return Treatment(penalty * truncated, every, every)


def mask(truncated: Flags) -> Treatment:
    """Not learned from; its reward still counts in its group's baseline."""
    return Treatment(torch.zeros(truncated.shape), torch.ones_like(truncated), ~truncated)


def exclude(truncated: Flags) -> Treatment:
    """Not learned from, and the baseline is that of the others."""
    return Treatment(torch.zeros(truncated.shape), ~truncated, ~truncated)


Truncation = Annotated[
    Choice,
    OneOf(
        {"penalise": penalise, "mask": mask, "exclude": exclude},
        given=("truncated",),
        bounds={"penalty": Field(ge=0)},
    ),
]
"""The treatment of completions that were cut at the length limit."""


class RlConfig(Params):
    """Sizes and rates, the same for every preset."""

    num_steps: int = Field(gt=0)
    """Rollout batches."""
    prompts_per_step: int = Field(gt=0)
    """Prompts that a rollout batch learns from."""
    temperature: float = Field(gt=0)
    """Of sampling, and of every log-probability."""
    max_new_tokens: int = Field(gt=0)
    """Longest completion."""
    num_checkpoints: int = Field(ge=0)
    """Policies kept along the way, evenly spaced, each as large as the policy; 0: none."""
    optim: OptimConfig


class RlPreset(ObjectiveConfig):
    """The choices that all methods have."""

    truncation: Truncation
    num_epochs: int = Field(gt=0)
    """Passes over each rollout batch (mu); old log-probs are computed once."""
    num_minibatches: int = Field(gt=0)
    """Optimizer steps in a pass; the first of all is on policy."""
    kl_budget: float | None = Field(gt=0)
    """Training ends when a completion's divergence from the reference exceeds it, in nats."""
    token_budget: int | None = Field(gt=0)
    """Tokens, generated and trained on, in place of `num_steps` (see `Pace`); null: none."""


def check(config: RlConfig, preset: RlPreset) -> None:
    """Refuse more mini-batches than prompts."""
    if preset.num_minibatches > config.prompts_per_step:
        raise ValueError(
            f"num_minibatches {preset.num_minibatches} is more than prompts_per_step "
            f"{config.prompts_per_step}: some would be empty"
        )


Gather = Callable[[int, Sequence[int], float], Experience]
"""Step, prompt numbers and the weight of the divergence -> what is learned from."""


def train(
    actor: Actor,
    gather: Gather,
    schedule: Schedule,
    config: RlConfig,
    preset: RlPreset,
    compute: ComputeConfig,
    critic: Critic | None = None,
) -> Iterator[Step]:
    """One step for each list of prompt numbers in `schedule`; policy and value model change.

    The policy's gradient is that of `policy_gradient.accumulate`. With a `token_budget`, training
    ends with the step that reaches it.

    Raises:
        ValueError: all completions of several steps were cut; the sampler's log-probs are not the
            trainer's.
    """
    actor.policy.train()
    optimizer = adamw(actor.policy, config.optim)
    weights, num_cut_steps, pace = Weights.start(preset), 0, Pace(schedule=schedule)
    per_step = preset.num_epochs * preset.num_minibatches
    for index, chosen in enumerate(schedule):
        gathered = gather(index, chosen, weights.kl)
        num_cut_steps = rollout_batch.check_some_ended(gathered.rollouts, num_cut_steps)
        metrics = gathered.metrics
        learns = critic is None or index >= critic.config.warmup_steps
        reuse = learns and (per_step > 1 or preset.old_kl is not None)
        parts = policy_gradient.make_parts(
            actor.policy, gathered, temperature=config.temperature, reuse=reuse
        )
        metrics["tokens/trained"] = preset.num_epochs * sum(
            int(part.batch.mask.sum()) for minibatch in parts for part in minibatch
        )
        pace.spend(metrics)
        first, total = index * per_step, pace.num_updates(index, per_step)
        learner = optimizer if learns else None
        metrics |= _updates(
            actor, critic, learner, gathered, parts, config, preset, weights, first, total
        )
        metrics |= _passes(gathered, parts, compute, preset, learns=learns, reuse=reuse)
        metrics["kl/coef"] = weights.kl
        if learns:
            if preset.old_kl is not None:
                metrics["kl/old_after"] = policy_gradient.from_old(
                    actor.policy, parts, temperature=config.temperature
                )
            weights = weights.after(preset, metrics, len(gathered.rewards))
        rows = rollout_batch.rows(gathered.rollouts, index, gathered.rewards, gathered.correct)
        yield Step(index=index, metrics=metrics, rows=rows)
        far = preset.kl_budget is not None and metrics["kl/sequence"] > preset.kl_budget
        if far or pace.over():
            return


def _updates(
    actor: Actor,
    critic: Critic | None,
    optimizer: torch.optim.Optimizer | None,
    gathered: Experience,
    parts: Sequence[Sequence[Part]],
    config: RlConfig,
    preset: RlPreset,
    weights: Weights,
    first: int,
    total: int,
) -> dict[str, float]:
    """Take a step for each mini-batch of each epoch; returns means over them.

    Args:
        actor, critic, config, preset: as of `train`.
        optimizer: of the policy; None while only the value model learns.
        gathered, parts: the rollout batch and, of each mini-batch, its micro-batches.
        weights: of the divergences.
        first, total: the first step's number in the run, and steps of the run, as it looks now.
    """
    metrics: dict[str, float] = {}
    num_updates = preset.num_epochs * sum(1 for minibatch in parts if minibatch)
    for number in range(preset.num_epochs * preset.num_minibatches):
        place = number % preset.num_minibatches
        if not parts[place]:
            continue
        step, counts = first + number, gathered.minibatches[place].counts
        found: dict[str, float] = {}
        if critic is not None:
            # With a shared trunk this gradient is the policy's too.
            found["loss/value"] = critic.add_gradient(parts[place], counts.num_tokens)
        if optimizer is not None:
            found |= policy_gradient.accumulate(
                actor.policy,
                actor.reference,
                parts[place],
                preset,
                counts,
                weights,
                temperature=config.temperature,
                on_policy=number == 0,
            )
            rollout_batch.check_sampler(found["sampling/logprob_gap"])
            metrics |= update(optimizer, config.optim, step, total)
        if critic is not None:
            actor.policy.zero_grad(set_to_none=True)
            metrics["optim/value_grad_norm"] = critic.update(step, total)
        for name, mean in found.items():
            metrics[name] = metrics.get(name, 0.0) + mean / num_updates
    return metrics


def _passes(
    gathered: Experience,
    parts: Sequence[Sequence[Part]],
    compute: ComputeConfig,
    preset: RlPreset,
    *,
    learns: bool,
    reuse: bool,
) -> dict[str, int]:
    """Passes of policy, reference and value model over judged completions (see `work`).

    The value model reads and learns from all of `parts`, the reference reads every completion.
    `learns`: False while only the value model does; `reuse`: the old log-probs had a pass of their
    own.
    """
    batches = [part.batch for minibatch in parts for part in minibatch]
    num_epochs = preset.num_epochs
    num_frozen = int(reuse) + int(learns and preset.old_kl is not None)
    found = work.of_batches("policy", "read", batches, times=num_frozen)
    found |= work.of_batches("policy", "trained", batches, times=num_epochs * learns)
    if gathered.values is not None:
        found |= work.of_batches("value", "read", batches, logits=False)
        found |= work.of_batches("value", "trained", batches, times=num_epochs, logits=False)
    if gathered.ref_logprobs is not None:
        positions = rollout_batch.num_positions(gathered.rollouts, compute.row_tokens)
        outputs = int(gathered.rollouts.mask().sum())
        if learns and isinstance(preset.kl, FullKlInLoss):
            positions += num_epochs * sum(batch.num_tokens for batch in batches)
            outputs += num_epochs * sum(int(batch.mask.sum()) for batch in batches)
        found |= work.passed("reference", "read", positions=positions, outputs=outputs)
    return found
