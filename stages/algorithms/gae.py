"""Generalised advantage estimation over the tokens of a completion."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def gae(
    rewards: Float[Tensor, "batch token"],
    values: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    gamma: float,
    lam: float | Float[Tensor, " batch"],
) -> tuple[Float[Tensor, "batch token"], Float[Tensor, "batch token"]]:
    """Advantages and returns of completions that end in a terminal state.

        delta_t = r_t + gamma V_{t+1} - V_t
        A_t     = delta_t + gamma lam A_{t+1}
        return_t = A_t + V_t

    V after the last counted token is 0: a completion is an episode, also when it was
    cut at the length limit. Schulman et al., "High-Dimensional Continuous Control Using
    Generalized Advantage Estimation" (2016), eq. 11 and 16, https://arxiv.org/abs/1506.02438

    Args:
        rewards: r_t, received on emitting token t.
        values: V_t, predicted before token t is emitted. No gradient flows through.
        mask: True at real tokens, which come first in each row.
        gamma: discount per token.
        lam: 1 gives return minus value, 0 the one-step residual; one for all
            completions, or one for each.

    Returns:
        advantages and returns; 0 where `mask` is False.
    """
    values = torch.where(mask, values.detach(), 0.0)
    rewards = torch.where(mask, rewards.detach(), 0.0)
    decay = gamma * (lam.detach() if isinstance(lam, Tensor) else lam)
    advantages = torch.zeros_like(rewards)
    following = rewards.new_zeros(len(rewards))
    next_values = rewards.new_zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + gamma * next_values - values[:, t]
        following = torch.where(mask[:, t], delta + decay * following, 0.0)
        advantages[:, t] = following
        next_values = values[:, t]
    return advantages, advantages + values
