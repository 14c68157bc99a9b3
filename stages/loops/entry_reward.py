"""The reward of a folder `data/rewards/<name>`, as a function of completions."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from stages.loops import model_reward, process_rewards
from stages.loops.actor import Actor
from stages.loops.rollouts import Rollouts
from stages.models import policy_chooser
from stages.models.device import ComputeConfig
from stages.rewards import composition, reward_file
from stages.rewards.feedback.prompts import OPTIONS
from stages.rewards.judged import Available, Judged


def load(
    folder: Path, seed: int, actor: Actor, compute: ComputeConfig, max_new_tokens: int
) -> Callable[[Rollouts], Judged]:
    """What a completion is worth.

    Args:
        folder: of the reward, with its `reward.json`.
        seed: whose model is asked, where there is one.
        actor: whose completions are judged; the model goes where its policy is.
        compute: the model's precision.
        max_new_tokens: where completions are cut.
    """
    reward = reward_file.read(folder)
    path, device = reward_file.model(folder, seed), actor.policy.device
    score, chooser = None, None
    match reward.model:
        case "reward":
            score = model_reward.load(path, reward.aggregate, compute, device, actor.pad_id)
        case "process":
            score = process_rewards.load(path, compute, device)
        case "policy":
            chooser = policy_chooser.load(path, OPTIONS, compute, device)
    function = None if reward.own is None else reward_file.load_own(reward.own)

    def judge(drawn: Rollouts) -> Judged:
        available = Available(
            scorer=None if score is None else partial(score, drawn),
            judge=chooser,
            own=function,
            max_new_tokens=max_new_tokens,
        )
        return composition.compose(reward.composition, drawn, available)

    return judge
