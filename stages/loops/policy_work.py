"""The passes of a reinforcement-learning step after its completions were judged."""

from collections.abc import Sequence

from stages.loops import rollouts as rollout_batch
from stages.loops import work
from stages.loops.choices.kl_penalty import FullKlInLoss
from stages.loops.objective import ObjectiveConfig, Part
from stages.loops.rollouts import Rollouts
from stages.models.device import ComputeConfig


def of_step(
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
    """Passes of policy, reference and value model, as metrics (see `work`).

    Args:
        parts: of each mini-batch, its micro-batches.
        drawn: all completions; the reference reads every one of them.
        compute: says which completions share a prompt.
        objective: says what else is read: the old policy again, for its divergence; the
            reference beside the policy, for the exact one.
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
