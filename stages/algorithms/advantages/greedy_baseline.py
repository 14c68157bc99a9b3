"""The advantage of ReMax: above the greedy completion of the prompt."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stages.algorithms.advantages.groups import without_signal


def greedy_baseline(
    rewards: Float[Tensor, " batch"],
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
    greedy_rewards: Float[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """r_i - r(greedy completion of the same prompt).

    A group of equal rewards gets 0 only when its greedy completion has that reward too:
    one completion a prompt, the method's usual case, has a signal here. Li et al.,
    "ReMax" (2023), https://arxiv.org/abs/2310.10505

    Args:
        rewards: one for each sampled completion.
        groups: the id of each completion's prompt.
        counted: False where a completion has advantage 0, whatever its rewards.
        greedy_rewards: of the prompt's greedy completion, repeated for each completion.

    Raises:
        ValueError: completions of one prompt with different greedy rewards.
    """
    if not without_signal(greedy_rewards, groups, counted=counted).all():
        raise ValueError(
            "expected one greedy reward a prompt, found different ones in a group: "
            "repeat the reward of the prompt's greedy completion for each of its rows"
        )
    return torch.where(counted, rewards.detach() - greedy_rewards.detach(), 0.0)
