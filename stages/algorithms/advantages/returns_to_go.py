"""What a completion still earns from each token on."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def returns_to_go(
    rewards: Float[Tensor, "batch token"],
    mask: Bool[Tensor, "batch token"],
    *,
    gamma: float,
) -> Float[Tensor, "batch token"]:
    """R_t = r_t + gamma R_{t+1}: the discounted sum of this and all later rewards.

    With a penalty on each token's log-ratio and the score on the last token, and whitened
    over the batch (`masking.masked_whiten`), these are the advantages of Hu, "REINFORCE++"
    (2025), https://arxiv.org/abs/2501.03262

    Args:
        rewards: r_t, received on emitting token t.
        mask: True at tokens that count. The others have return 0 and are no steps: they
            neither add nor discount.
        gamma: discount per counted token.
    """
    rewards = torch.where(mask, rewards.detach(), 0.0)
    returns = torch.zeros_like(rewards)
    following = rewards.new_zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        following = torch.where(mask[:, t], rewards[:, t] + gamma * following, following)
        returns[:, t] = following
    return torch.where(mask, returns, 0.0)
