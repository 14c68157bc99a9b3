"""Step rewards of which only the smallest counts."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def min_credit(
    step_rewards: Float[Tensor, "batch token"], step_ends: Bool[Tensor, "batch token"]
) -> tuple[Float[Tensor, "batch token"], Bool[Tensor, "batch token"]]:
    """Each completion keeps the reward of one step, its smallest; the first of equal ones.

        r'_j = r_j  where j = the first of argmin_i r_i,   no reward elsewhere

    So what is earned from a token on is min_i r_i up to the end of the worst step, and nothing
    after it; steps before and after it earn nothing of their own, and more steps can only lower
    the sum. Summed credit (the rewards as they are) pays for each further step.

    Cheng et al., "Stop Summation: Min-Form Credit Assignment Is All Process Reward Model Needs
    for Reasoning" (PURE, 2025), https://arxiv.org/abs/2504.15275, weigh each reward by
    softmax(-r / T) over the completion's steps, T = 0.1. Departure: this is its limit T -> 0,
    with a tie given to the first step instead of being shared: an error begins where the score
    falls.

    Args:
        step_rewards: r, at the last token of each step; ignored elsewhere.
        step_ends: True at the last token of each step that has a reward.

    Returns:
        The rewards, 0 where there is none, and where the one that counts is paid.
    """
    candidates = torch.where(step_ends, step_rewards.detach(), torch.inf)
    # `argmin` gives any of equal ones.
    smallest = step_ends & (candidates == candidates.amin(1, keepdim=True))
    first = smallest & (smallest.cumsum(1) == 1)
    return torch.where(first, candidates, 0.0), first
