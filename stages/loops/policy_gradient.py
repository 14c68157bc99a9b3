"""The completions of a rollout batch as mini-batches, and the policy's gradient of each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stages.algorithms import kl
from stages.algorithms.aggregation import masked_sum
from stages.loops import rollouts as rollout_batch
from stages.loops.divergence import check_on_policy, frozen_logprobs
from stages.loops.objective import Counts, ObjectiveConfig, Part, Weights, part_loss
from stages.loops.rollouts import Actor, Rollouts
from stages.models.batch import Batch
from stages.models.policy import Policy

Grid = Float[Tensor, "completion longest"]
"""Laid out as `Rollouts.mask()`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Minibatch(Counts):
    """The completions of one optimizer step, counted with those that have no gradient."""

    batches: list[Batch]
    """Of the completions that have a gradient."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Experience:
    """One rollout batch, all of it frozen."""

    rollouts: Rollouts
    rewards: Float[Tensor, " batch"]
    correct: list[bool]
    minibatches: list[Minibatch]
    advantages: Grid
    """Of the tokens that are learned from; 0 elsewhere."""
    ref_logprobs: Grid | None
    """None: without a reference."""
    metrics: dict[str, int | float]
    values: Grid | None = None
    """With a value model, what it foresaw before each token; and what it learns to foresee."""
    returns: Grid | None = None


def partition(num_prompts: int, num_minibatches: int, seed: int) -> list[list[int]]:
    """Prompt numbers of each mini-batch, shuffled; a prompt's completions stay together."""
    order = np.random.default_rng(seed).permutation(num_prompts)
    return [part.tolist() for part in np.array_split(order, num_minibatches)]


def split(
    actor: Actor,
    drawn: Rollouts,
    num_minibatches: int,
    seed: int,
    *,
    used: Bool[Tensor, " batch"],
    learned: Bool[Tensor, " batch"],
    computed: Bool[Tensor, " batch"],
    max_length: int,
) -> list[Minibatch]:
    """The mini-batches of all completions of a rollout batch; see `partition`.

    The step is a mean over those that are `used`; of these the tokens of `learned` ones count, and
    only `computed` ones, which have a gradient, reach the model.
    """
    lengths, prompt_of = drawn.mask().sum(1), torch.tensor(drawn.groups)
    prompts = prompt_of[used].unique()
    parts = partition(len(prompts), num_minibatches, seed)
    return [
        Minibatch(
            batches=rollout_batch.batches(actor, drawn, inside & computed),
            num_tokens=int(lengths[inside & learned].sum()),
            num_sequences=int((inside & used).sum()),
            max_length=max_length,
        )
        for inside in (torch.isin(prompt_of, prompts[places]) for places in parts)
    ]


def make_parts(
    policy: Policy, gathered: Experience, *, temperature: float, reuse: bool
) -> list[list[Part]]:
    """The micro-batches of each mini-batch.

    Old log-probs are those of the very micro-batches trained on, in eval mode, so that the
    first ratio is exactly 1. Without `reuse` (one update in all) they are the new ones.
    """
    right = torch.tensor(gathered.correct)
    grids = {
        "advantages": gathered.advantages,
        "sampler_logprobs": gathered.rollouts.sampler_logprobs(),
        "ref_logprobs": gathered.ref_logprobs,
        "old_values": gathered.values,
        "returns": gathered.returns,
    }

    def part(batch: Batch, old_logprobs: Grid | None) -> Part:
        device, width = batch.mask.device, batch.mask.shape[1]
        rows = {
            name: grid[batch.indices, :width].to(device)
            for name, grid in grids.items()
            if grid is not None
        }
        correct = right[batch.indices].to(device)
        return Part(batch=batch, old_logprobs=old_logprobs, correct=correct, **rows)

    parts: list[list[Part]] = []
    for batches in (minibatch.batches for minibatch in gathered.minibatches):
        old: Sequence[Grid | None] = [None] * len(batches)
        if reuse:
            old = frozen_logprobs(policy, batches, temperature=temperature)
        parts.append([part(*pair) for pair in zip(batches, old, strict=True)])
    return parts


def accumulate(
    policy: Policy,
    parts: Sequence[Part],
    config: ObjectiveConfig,
    counts: Counts,
    weights: Weights,
    *,
    temperature: float,
    on_policy: bool,
) -> dict[str, float]:
    """Add the gradient of a step (`part_loss`) to the policy's; returns loss and token means."""
    num_positive = sum(int(part.batch.mask[part.correct].sum()) for part in parts)
    sums: dict[str, float] = {}
    for part in parts:
        learns_entropy = config.entropy_coef > 0
        new = policy(part.batch, temperature=temperature, entropy_gradient=learns_entropy)
        old = new.logprobs.detach() if part.old_logprobs is None else part.old_logprobs
        if on_policy and part.old_logprobs is not None:
            check_on_policy(new.logprobs, part.old_logprobs)
        loss, clipped = part_loss(new, part, config, counts, weights, num_positive=num_positive)
        loss.backward()
        mask = part.batch.mask
        with torch.no_grad():
            counted = {
                "loss/policy": loss,
                "entropy": masked_sum(new.entropies, mask),
                "clip_fraction": masked_sum(clipped.float(), mask),
                "kl/old": masked_sum(kl.k3(old, new.logprobs), mask),
                "sampling/logprob_gap": masked_sum((part.sampler_logprobs - old).abs(), mask),
            }
        for name, value in counted.items():
            sums[name] = sums.get(name, 0.0) + value.item()
    num_tokens = max(1, sum(int(part.batch.mask.sum()) for part in parts))
    return {
        name: value if name == "loss/policy" else value / num_tokens for name, value in sums.items()
    }


def from_old(policy: Policy, minibatches: Sequence[Sequence[Part]], *, temperature: float) -> float:
    """KL(old || policy) a token, after the last update, on the tokens learned from.

    Estimated without bias under the old policy, which drew them: exp(d) - 1 - d with
    d = log policy - log old. The coefficient `old_kl` follows it (Schulman et al. 2017,
    section 4, measure it after the updates too).
    """
    parts = [part for minibatch in minibatches for part in minibatch]
    news = frozen_logprobs(policy, [part.batch for part in parts], temperature=temperature)
    total, num_tokens = 0.0, 0
    for part, new in zip(parts, news, strict=True):
        assert part.old_logprobs is not None, "the old log-probs were not kept"
        total += masked_sum(kl.k3(part.old_logprobs, new), part.batch.mask).item()
        num_tokens += int(part.batch.mask.sum())
    return total / max(1, num_tokens)
