"""The gradient of one optimizer step of the policy, and the passes that a rollout batch takes."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from stages.algorithms import kl
from stages.algorithms.aggregation import masked_sum
from stages.loops import rollouts as rollout_batch
from stages.loops import work
from stages.loops.divergence import check_on_policy
from stages.loops.kl_penalty import FullKlInLoss
from stages.loops.objective import Counts, New, ObjectiveConfig, Part, Weights, part_loss
from stages.loops.rollouts import Rollouts
from stages.models import policy as policy_model
from stages.models.batch import Batch
from stages.models.device import ComputeConfig


def accumulate(
    policy: PreTrainedModel,
    reference: PreTrainedModel | None,
    parts: Sequence[Part],
    config: ObjectiveConfig,
    counts: Counts,
    weights: Weights,
    *,
    temperature: float,
    on_policy: bool,
) -> dict[str, float]:
    """Add the gradient of one optimizer step (`part_loss`) to the policy's.

    Returns the loss, and means over the step's tokens of what else there is to know.
    """
    num_positive = sum(int(part.batch.mask[part.correct].sum()) for part in parts)
    sums: dict[str, float] = {}
    for part in parts:
        new = _forward(policy, reference, part.batch, config, temperature)
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


def _forward(
    policy: PreTrainedModel,
    reference: PreTrainedModel | None,
    batch: Batch,
    config: ObjectiveConfig,
    temperature: float,
) -> New:
    states = policy_model.states(policy, batch)
    logprobs, entropies = policy_model.state_logprobs(
        policy,
        states,
        batch,
        temperature=temperature,
        entropy_gradient=config.entropy_coef > 0,
    )
    full_kl = None
    if isinstance(config.kl, FullKlInLoss):
        assert reference is not None
        full_kl = policy_model.state_kl(policy, states, reference, batch, temperature=temperature)
    return New(logprobs=logprobs, entropies=entropies, full_kl=full_kl)


def passes(
    parts: Sequence[Sequence[Part]],
    drawn: Rollouts,
    compute: ComputeConfig,
    objective: ObjectiveConfig,
    *,
    num_epochs: int,
    learns: bool = True,
    reuse: bool,
    has_reference: bool = True,
    has_value: bool = False,
) -> dict[str, int]:
    """Passes of policy, reference and value model over judged completions (see `work`).

    Args:
        parts: of each mini-batch, its micro-batches.
        drawn: all completions; the reference reads every one of them.
        compute: says which completions share a prompt.
        objective: says whether the policy is read once more, for its divergence from the old one,
            and the reference beside it, for the exact divergence.
        num_epochs: passes over the mini-batches.
        learns: False while only the value model does.
        reuse: the old log-probs were computed by a pass of their own.
        has_reference: there is one.
        has_value: there is a value model, which reads and learns from all of `parts`.
    """
    batches = [part.batch for minibatch in parts for part in minibatch]
    num_frozen = int(reuse) + int(learns and objective.old_kl is not None)
    found = work.of_batches("policy", "read", batches, times=num_frozen)
    found |= work.of_batches("policy", "trained", batches, times=num_epochs * learns)
    if has_value:
        found |= work.of_batches("value", "read", batches, logits=False)
        found |= work.of_batches("value", "trained", batches, times=num_epochs, logits=False)
    if has_reference:
        positions = rollout_batch.num_positions(drawn, compute.row_tokens)
        outputs = sum(len(sample.token_ids) for sample in drawn.samples)
        if learns and isinstance(objective.kl, FullKlInLoss):
            positions += num_epochs * sum(batch.num_tokens for batch in batches)
            outputs += num_epochs * sum(int(batch.mask.sum()) for batch in batches)
        found |= work.passed("reference", "read", positions=positions, outputs=outputs)
    return found
