"""The reward of an entry: its composition, with the model and the function that it names."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from stages.loops import model_reward, process_rewards
from stages.loops.actor import Actor
from stages.loops.rollouts import Rollouts
from stages.models import policy_chooser
from stages.models.aggregate import Aggregate
from stages.models.device import ComputeConfig
from stages.models.process_scorer import PROCESS_MODELS
from stages.rewards import composition, own_reward
from stages.rewards.available import Available
from stages.rewards.composition_config import Composition
from stages.rewards.feedback.judge_prompt import OPTIONS
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
    score, chooser = None, None
    device = actor.policy.device
    if config.needs_judge():
        chooser = policy_chooser.load(DATA / scorer, OPTIONS, compute, device)
    elif config.needs_model() and scorer.startswith(PROCESS_MODELS):
        score = process_rewards.load(DATA / scorer, compute, device)
    elif config.needs_model():
        score = model_reward.load(DATA / scorer, aggregate, compute, device, actor.pad_id)
    function = own_reward.load(own) if config.needs_own() else None

    def judge(drawn: Rollouts) -> Judged:
        available = Available(
            scorer=None if score is None else partial(score, drawn),
            judge=chooser,
            own=function,
            max_new_tokens=max_new_tokens,
        )
        return composition.compose(config, drawn, available)

    return judge
