"""The reward of an entry: its composition, with the model and the function that it names."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from stages.loops import model_reward
from stages.loops.actor import Actor
from stages.loops.rollouts import Rollouts
from stages.models.aggregate import Aggregate
from stages.models.device import ComputeConfig
from stages.rewards import composition, own_reward
from stages.rewards.available import Available
from stages.rewards.composition_config import Composition
from stages.rewards.judged import Judged

NO_MODEL = "no_model"
"""The word of an entry that has no model."""
DATA = Path("data")


def load(
    config: Composition,
    scorer: str,
    own: str,
    aggregate: Aggregate,
    actor: Actor,
    compute: ComputeConfig,
    max_new_tokens: int,
) -> Callable[[Rollouts], Judged]:
    """What a completion is worth, as a function of completions.

    Args:
        config: the entry of the table `rewards`.
        scorer: the model's folder under data/, or `NO_MODEL`.
        own: the user's file in stages/rewards/own/, or `own_reward.NONE`.
        aggregate: how the scores of an ensemble become one.
        actor: whose completions are judged; the model goes where its policy is.
        compute: the model's precision.
        max_new_tokens: where completions are cut.

    Raises:
        ValueError: a component needs a model or a function that the entry does not name.
    """
    if config.needs_model() and scorer == NO_MODEL:
        raise ValueError(
            f"this reward needs a model: name one as the entry's `scorer`, in place of {NO_MODEL}"
        )
    if config.needs_own() and own == own_reward.NONE:
        raise ValueError(
            "this reward needs a function: name a file of stages/rewards/own/ as the entry's `own`"
        )
    if "judge" in config.kinds():
        raise ValueError("a component of kind judge: no model here grades single completions yet")
    score = None
    if config.needs_model():
        score = model_reward.load(
            DATA / scorer, aggregate, compute, actor.policy.device, actor.pad_id
        )
    function = own_reward.load(own) if config.needs_own() else None

    def judge(drawn: Rollouts) -> Judged:
        available = Available(
            scorer=None if score is None else partial(score, drawn),
            judge=None,
            own=function,
            max_new_tokens=max_new_tokens,
        )
        return composition.compose(config, drawn, available)

    return judge
