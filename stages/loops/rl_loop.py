"""Reinforcement learning step by step: the part that PPO and the group methods share.

Each step samples and judges completions (`gather`, which is the method's own), then takes an
optimizer step for each mini-batch of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from stages.loops import divergence, policy_gradient
from stages.loops import rollouts as rollout_batch
from stages.loops.critic import Critic, ValuePart
from stages.loops.epochs import Pace, Schedule
from stages.loops.minibatches import Minibatch, make_parts
from stages.loops.objective import Part, Weights
from stages.loops.rl_preset import RlConfig, RlPreset
from stages.loops.rollouts import Actor, Rollouts
from stages.loops.step import Step
from stages.models.device import ComputeConfig
from stages.optim import adamw, update


@dataclass(frozen=True, kw_only=True, slots=True)
class Experience:
    """One rollout batch, all of it frozen; grids are laid out as `rollouts.mask()`."""

    rollouts: Rollouts
    rewards: Float[Tensor, " batch"]
    correct: list[bool]
    minibatches: list[Minibatch]
    advantages: Float[Tensor, "completion longest"]
    """Of the tokens that are learned from; 0 elsewhere."""
    ref_logprobs: Float[Tensor, "completion longest"] | None
    metrics: dict[str, int | float]
    value_parts: list[list[ValuePart]] = field(default_factory=list)
    """With a value model, of each mini-batch its micro-batches: those of `minibatches`."""


Gather = Callable[[int, Sequence[int], float], Experience]
"""Step, prompt numbers and the weight of the divergence -> what is learned from."""


@dataclass(frozen=True, slots=True)
class Learning:
    """The optimizer steps of one rollout batch."""

    critic: Critic | None
    optimizer: torch.optim.Optimizer | None
    """Of the policy; None while only the value model learns."""
    first: int
    """The number of the first of them in the whole run."""
    total: int
    """Of the run, as it looks now."""

    def updates(
        self,
        actor: Actor,
        gathered: Experience,
        parts: Sequence[Sequence[Part]],
        config: RlConfig,
        preset: RlPreset,
        weights: Weights,
    ) -> dict[str, float]:
        """Take a step for each mini-batch of each epoch; returns means over them."""
        metrics: dict[str, float] = {}
        num_updates = preset.num_epochs * sum(1 for minibatch in parts if minibatch)
        for number in range(preset.num_epochs * preset.num_minibatches):
            place = number % preset.num_minibatches
            if not parts[place]:
                continue
            step, counts = self.first + number, gathered.minibatches[place].counts
            found: dict[str, float] = {}
            if self.critic is not None:
                # With a shared trunk this gradient is the policy's too.
                value_parts = gathered.value_parts[place]
                found["loss/value"] = self.critic.add_gradient(value_parts, counts.num_tokens)
            if self.optimizer is not None:
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
                metrics |= update(self.optimizer, config.optim, step, self.total)
            if self.critic is not None:
                actor.policy.zero_grad(set_to_none=True)
                metrics["optim/value_grad_norm"] = self.critic.update(step, self.total)
            for name, mean in found.items():
                metrics[name] = metrics.get(name, 0.0) + mean / num_updates
        return metrics


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
        learning = Learning(critic, optimizer if learns else None, index * per_step, total)
        metrics |= learning.updates(actor, gathered, parts, config, preset, weights)
        metrics |= policy_gradient.passes(
            parts,
            gathered.rollouts,
            compute,
            preset,
            num_epochs=preset.num_epochs,
            learns=learns,
            reuse=reuse,
            has_reference=actor.reference is not None,
            has_value=critic is not None,
        )
        metrics["kl/coef"] = weights.kl
        if learns:
            if preset.old_kl is not None:
                metrics["kl/old_after"] = divergence.from_old(
                    actor.policy, parts, temperature=config.temperature
                )
            weights = weights.after(preset, metrics, len(gathered.rewards))
        rows = rollout_batch.rows(gathered.rollouts, index, gathered.rewards, gathered.correct)
        yield Step(index=index, metrics=metrics, rows=rows)
        far = preset.kl_budget is not None and metrics["kl/sequence"] > preset.kl_budget
        if far or pace.over():
            return
