"""The advantage of GRPO from rewards of single steps: process supervision."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stages.algorithms.advantages.group_zscore import group_zscore
from stages.algorithms.advantages.returns_to_go import returns_to_go


def step_zscore(
    step_rewards: Float[Tensor, "batch token"],
    step_ends: Bool[Tensor, "batch token"],
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
    ddof: int,
    eps: float,
) -> Float[Tensor, "batch token"]:
    """The normalised rewards of the steps that end at a token or after it, summed.

        z_j = (r_j - mean(R)) / (std(R) + eps),   R: the rewards of all steps of the group
        A_t = sum of z_j over the completion's steps j that end at t or later

    Shao et al., "DeepSeekMath" (2024), section 4.1.3, https://arxiv.org/abs/2402.03300, which
    leaves the divisor of the variance and eps open, as for outcomes. Where every completion is
    one step, this is `group_zscore` of the steps' rewards at each of its tokens. A completion
    of many steps weighs more in the mean, and its first tokens' advantage is a sum of more
    terms: of completions whose steps are all a little above the mean, the one with more steps
    gains more. A group of equal rewards gets exactly 0.

    Args:
        step_rewards: r, at the last token of each step; ignored elsewhere.
        step_ends: True at the last token of each step that has a reward.
        groups: the id of each completion's prompt.
        counted: False where a completion enters no statistic and has advantage 0.
        ddof: 0 divides the variance by n, 1 by n - 1, n counting the steps of the group.
        eps: added to the standard deviation.
    """
    row_of = step_ends.nonzero()[:, 0]
    zscores = group_zscore(
        step_rewards.detach()[step_ends],
        groups[row_of],
        counted=counted[row_of],
        ddof=ddof,
        eps=eps,
    )
    grid = torch.zeros_like(step_rewards).masked_scatter(step_ends, zscores)
    return returns_to_go(grid, torch.ones_like(step_ends), gamma=1.0)
