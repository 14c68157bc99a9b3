"""Reinforcement learning step by step: the part that PPO and the group methods share.

A step gathers completions that are judged, then takes an optimizer step for each mini-batch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice

import torch
from pydantic import Field

from stages.loops import epochs, work
from stages.loops import rollouts as rollout_batch
from stages.loops.advantages import Treatment, Truncation
from stages.loops.critic import Critic
from stages.loops.epochs import Pace
from stages.loops.objective import ObjectiveConfig, Part, Weights
from stages.loops.policy_gradient import Experience, accumulate, from_old, make_parts
from stages.loops.rollouts import Actor, DrawingConfig, Rollouts, Task
from stages.loops.state import State
from stages.loops.work import Step
from stages.models.batch import Batch
from stages.optim import OptimConfig, update
from stages.rewards.judged import Judged
from stages.sampler import Guest


class RlConfig(DrawingConfig):
    """Sizes and rates, the same for every preset."""

    num_steps: int = Field(gt=0)
    """Rollout batches."""
    prompts_per_step: int = Field(gt=0)
    """Prompts that a rollout batch learns from."""
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

    def treatment(self, drawn: Rollouts) -> Treatment:
        """Of the completions that were cut."""
        return self.truncation(truncated=drawn.truncated())

    def max_prompts(self, config: RlConfig) -> int:
        """Prompts that a step may need."""
        return config.prompts_per_step


def check(config: RlConfig, preset: RlPreset) -> None:
    """Refuse more mini-batches than prompts."""
    number, prompts = preset.num_minibatches, config.prompts_per_step
    if number > prompts:
        raise ValueError(f"num_minibatches {number} is more than prompts_per_step {prompts}")


def schedule(task: Task, config: RlConfig, preset: RlPreset, seed: int) -> Iterable[Sequence[int]]:
    """Prompt numbers of each step; with a `token_budget` without an end, the same at first."""
    found = epochs.endless(len(task.prompts), preset.max_prompts(config), seed)
    return found if preset.token_budget is not None else islice(found, config.num_steps)


def judge(task: Task, preset: RlPreset, drawn: Rollouts) -> Judged:
    """The task's rewards, those of cut completions lowered where the preset says so."""
    judged = task.reward(drawn)
    totals = torch.tensor(judged.totals, dtype=torch.float32) - preset.treatment(drawn).penalties
    return replace(judged, totals=totals.tolist())


def train(
    actor: Actor,
    gather: Callable[[int, Sequence[int], float], Experience],
    schedule: Iterable[Sequence[int]],
    config: RlConfig,
    preset: RlPreset,
    state: State,
    critic: Critic | None = None,
) -> Iterator[Step]:
    """One step for each list of prompt numbers in `schedule`; policy and value model change.

    `gather`, of the step's number, prompts and weight of the divergence, is the method's own. The
    gradient is that of `accumulate`. A `token_budget` ends training with the step that reaches it.
    """
    actor.policy.train()
    optimizer = state.optimizer("policy", actor.policy, config.optim)
    known, temperature = state.numbers, config.temperature
    weights = Weights(**known["weights"]) if known else Weights.start(preset)
    num_cut_steps, spent = known.get("cut_steps", 0), known.get("spent", 0)
    pace = Pace(num_steps=config.num_steps, budget=preset.token_budget, spent=spent)
    per_step = preset.num_epochs * preset.num_minibatches
    over = known.get("over", False)
    for index, chosen in enumerate(islice(schedule, state.step, None), state.step):
        if over:
            return
        gathered = gather(index, chosen, weights.kl)
        if isinstance(actor.sampler, Guest):
            actor.sampler.rest()
        num_cut_steps = rollout_batch.check_some_ended(gathered.rollouts, num_cut_steps)
        metrics = gathered.metrics
        learns = critic is None or index >= critic.config.warmup_steps
        reuse = learns and (per_step > 1 or preset.old_kl is not None)
        parts = make_parts(actor.policy, gathered, temperature=temperature, reuse=reuse)
        batches = [part.batch for minibatch in parts for part in minibatch]
        num_tokens = sum(int(batch.mask.sum()) for batch in batches)
        metrics["tokens/trained"] = preset.num_epochs * num_tokens
        pace.spend(metrics)
        first, total = index * per_step, pace.num_updates(index, per_step)
        learner = optimizer if learns else None
        state.mixed = True
        metrics |= _updates(
            actor, critic, learner, gathered, parts, config, preset, weights, first, total
        )
        work.add(metrics, _passes(batches, critic, preset, learns=learns, reuse=reuse))
        metrics["kl/coef"] = weights.kl
        if learns:
            if preset.old_kl is not None:
                metrics["kl/old_after"] = from_old(actor.policy, parts, temperature=temperature)
            weights = weights.after(preset, metrics, len(gathered.rewards))
        rows = rollout_batch.rows(gathered.rollouts, index, gathered.rewards, gathered.correct)
        far = preset.kl_budget is not None and metrics["kl/sequence"] > preset.kl_budget
        over = far or pace.over()
        own = {"weights": asdict(weights), "cut_steps": num_cut_steps, "spent": pace.spent}
        state.step, state.numbers = index + 1, own | {"over": over}
        yield Step(index=index, metrics=metrics, rows=rows)


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

    `optimizer` is None while only the value model learns. The steps are number `first` and
    following of `total` in the run, as it looks now.
    """
    metrics: dict[str, float] = {}
    num_updates = preset.num_epochs * sum(1 for minibatch in parts if minibatch)
    minibatches = zip(parts, gathered.minibatches, strict=True)
    for step, (own, counts) in enumerate([*minibatches] * preset.num_epochs, first):
        if not own:
            continue
        found: dict[str, float] = {}
        if critic is not None:
            found["loss/value"] = critic.add_gradient(own, counts.num_tokens)
        if optimizer is not None:
            found |= accumulate(
                actor.policy,
                own,
                preset,
                counts,
                weights,
                temperature=config.temperature,
                on_policy=step == first,
            )
            rollout_batch.check_sampler(found["sampling/logprob_gap"])
            metrics |= update(optimizer, config.optim, step, total)
        if critic is not None:
            metrics["optim/value_grad_norm"] = critic.update(step, total)
        for name, mean in found.items():
            metrics[name] = metrics.get(name, 0.0) + mean / num_updates
    return metrics


def _passes(
    batches: Sequence[Batch], critic: Critic | None, preset: RlPreset, *, learns: bool, reuse: bool
) -> dict[str, int]:
    """Passes over what is learned from (see `work`); `reuse`: old log-probs had one too."""
    num_epochs = preset.num_epochs
    num_frozen = int(reuse) + int(learns and preset.old_kl is not None)
    found = work.of_batches("policy", "read", batches, times=num_frozen)
    found |= work.of_batches("policy", "trained", batches, times=num_epochs * learns)
    if critic is not None:
        found |= work.of_batches("value", "trained", batches, times=num_epochs, logits=False)
    return found
