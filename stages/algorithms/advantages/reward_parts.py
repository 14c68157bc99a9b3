"""One advantage from several rewards: summed first, or normalised first."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stages.algorithms.advantages.group_zscore import group_zscore
from stages.algorithms.advantages.groups import without_signal


def weighted_sum(
    parts: Float[Tensor, "part batch"], weights: Float[Tensor, " part"]
) -> Float[Tensor, " batch"]:
    """sum_k w_k r_k: one reward for each completion, in the parts' own units."""
    return (weights[:, None] * parts).sum(0)


def normalised_sum(
    parts: Float[Tensor, "part batch"],
    weights: Float[Tensor, " part"],
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
    ddof: int,
    eps: float,
) -> Float[Tensor, " batch"]:
    """Each part as standard deviations within its group, summed, then whitened.

        z_k = group z-score of r_k
        s   = sum_k w_k z_k
        A   = (s - mean of s over the batch) / (std of s over the batch + eps)

    So a part weighs what its weight says, whatever its units. A completion whose group has
    no signal in any part gets exactly 0. Liu, S.-Y. et al., "GDPO: Group reward-Decoupled
    Normalization Policy Optimization" (2026), https://arxiv.org/abs/2601.05242; TRL's
    `normalize_then_sum` (ddof 1, eps 1e-4 in both places).

    Args:
        parts: one row of rewards for each part.
        weights: w, one for each part.
        groups: the id of each completion's prompt.
        counted: False where a completion enters no statistic and has advantage 0.
        ddof: of both standard deviations: 0 divides by n, 1 by n - 1.
        eps: added to both.
    """
    parts = parts.detach()
    zscores = [group_zscore(part, groups, counted=counted, ddof=ddof, eps=eps) for part in parts]
    silent = [without_signal(part, groups, counted=counted) for part in parts]
    # The whole batch is one group.
    whitened = group_zscore(
        weighted_sum(torch.stack(zscores), weights.detach()),
        torch.zeros_like(groups),
        counted=counted,
        ddof=ddof,
        eps=eps,
    )
    return torch.where(torch.stack(silent).all(0), 0.0, whitened)
