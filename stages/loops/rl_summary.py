"""What a run of reinforcement learning did, in tokens, and the models that it held in memory."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from stages.loops import entry_reward, work
from stages.loops.actor import Actor
from stages.loops.step import Step, totals
from stages.models import size
from stages.models.size import Size
from stages.rewards.composition_config import Composition


def summarise(
    history: Sequence[Step],
    actor: Actor,
    reward: Composition,
    scorer: str,
    value: nn.Module | None = None,
) -> dict[str, Any]:
    """The numbers of `metrics.json`: `step.totals` and `work`; arguments as `sizes`."""
    done = work.summary((step.metrics for step in history), sizes(actor, reward, scorer, value))
    return {**totals(history), "work": done}


def sizes(
    actor: Actor, reward: Composition, scorer: str, value: nn.Module | None
) -> dict[str, Size]:
    """Policy, reference, value model, and the model that the reward asks; those that there are.

    Args:
        actor: policy and reference, adapters attached.
        reward: says whether it asks the model.
        scorer: its folder under data/; of an ensemble the members are counted together.
        value: with a trunk shared with the policy, its head alone is its own.
    """
    found = {"policy": size.measure(actor.policy)}
    if actor.reference is not None:
        found["reference"] = size.frozen(actor.reference)
    if value is not None:
        found["value"] = size.measure(value)
    if reward.needs_model():
        found["scorer"] = size.of_scorer(entry_reward.DATA / scorer)
    return found
