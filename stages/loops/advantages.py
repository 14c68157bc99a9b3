"""The treatment of cut completions, and the advantage of each token without a value model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from stages.algorithms import group_advantages
from stages.algorithms.aggregation import masked_whiten
from stages.algorithms.group_advantages import group_zscore
from stages.algorithms.token_advantages import returns_to_go, step_zscore
from stages.choice import Choice, OneOf

Grid = Float[Tensor, "batch token"]
Mask = Bool[Tensor, "batch token"]
Rewards = Float[Tensor, " batch"]
Flags = Bool[Tensor, " batch"]


class Treatment(NamedTuple):
    """What is subtracted from rewards, and which completions make the baseline and the loss."""

    penalties: Float[Tensor, " batch"]
    in_baseline: Flags
    in_loss: Flags


def penalise(truncated: Flags, *, penalty: float) -> Treatment:
    """Learned from like any other, its reward lowered; at penalty 0 it is judged by its text."""
    every = torch.ones_like(truncated)
    return Treatment(penalty * truncated, every, every)


def mask(truncated: Flags) -> Treatment:
    """Not learned from; its reward still counts in its group's baseline."""
    return Treatment(torch.zeros(truncated.shape), torch.ones_like(truncated), ~truncated)


def exclude(truncated: Flags) -> Treatment:
    """Not learned from, and the baseline is that of the others."""
    return Treatment(torch.zeros(truncated.shape), ~truncated, ~truncated)


Truncation = Annotated[
    Choice,
    OneOf(
        {"penalise": penalise, "mask": mask, "exclude": exclude},
        given=("truncated",),
        bounds={"penalty": Field(ge=0)},
    ),
]
"""The treatment of completions that were cut at the length limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """Completions with their rewards, in any order.

    A kind that gives all tokens of a completion one advantage takes the sum of its step rewards;
    one that looks at tokens pays each where it belongs.
    """

    end_rewards: Rewards
    """Paid at a completion's last token, besides `step_rewards`."""
    penalties: Grid
    """Of the divergence, where it is part of the reward; else 0. Subtracted where they stand."""
    mask: Mask
    """True at tokens."""
    groups: Int[Tensor, " batch"]
    """Which prompt each completion answers."""
    counted: Flags
    """False: left out of the baseline and of all statistics, advantage 0."""
    greedy_rewards: Callable[[], Rewards]
    """Of the greedy completion of each one's prompt; sampled when first asked for."""
    step_rewards: Grid | None = None
    """Paid at the end of each step; None: no reward is of steps."""
    step_ends: Mask | None = None
    """Where steps end that have a reward."""

    def totals(self) -> Rewards:
        """The reward of each completion, its penalties summed and subtracted."""
        rewards = self.end_rewards
        if self.step_rewards is not None:
            rewards = rewards + self.step_rewards.sum(1)
        return rewards - self.penalties.sum(1)


def batch_whitened(scored: Scored, *, gamma: float, eps: float) -> Grid:
    """Reward to go, penalties token by token, whitened over the batch's tokens: REINFORCE++.

    `gamma` is the discount per token; `eps` is added to the variance. See `returns_to_go`.
    """
    rewards = token_rewards(scored.end_rewards, scored.step_rewards, scored.penalties, scored.mask)
    mask = scored.mask & scored.counted[:, None]
    return masked_whiten(returns_to_go(rewards, mask, gamma=gamma), mask, eps=eps)


def token_rewards(
    end_rewards: Rewards, step_rewards: Grid | None, penalties: Grid, mask: Mask
) -> Grid:
    """What is paid at each token: a completion's reward at its last; see `Scored`."""
    rewards = -penalties if step_rewards is None else step_rewards - penalties
    last = (mask.sum(1, keepdim=True) - 1).clamp(min=0)
    return rewards.scatter_add(1, last, end_rewards[:, None])


def steps_and_ends(scored: Scored, *, step_weight: float, ddof: int, eps: float) -> Grid:
    """Process supervision of GRPO, beside its outcome supervision.

        A_t = step_weight * step_zscore_t + group_zscore(end rewards - their penalties)

    Shao et al. 2024, section 4.1.3, where the first term stands alone; here it does where the end
    rewards of a group are all equal, as they are without a verifier. Both terms are normalised
    first, so the verifier weighs what its weight says, whatever the scale of the step rewards.
    n - `ddof` divides both variances; `eps` is added to both standard deviations.
    """
    if scored.step_rewards is None or scored.step_ends is None:
        raise ValueError(
            "advantage step_zscore compares rewards of steps, found a reward without any: learn on "
            "a reward of kind process, or on one with a component of kind process"
        )
    groups, counted = scored.groups, scored.counted
    steps = step_zscore(
        scored.step_rewards, scored.step_ends, groups, counted=counted, ddof=ddof, eps=eps
    )
    rewards = scored.end_rewards - scored.penalties.sum(1)
    ends = group_zscore(rewards, groups, counted=counted, ddof=ddof, eps=eps)
    return step_weight * steps + ends[:, None] * scored.mask


Advantage = Annotated[
    Choice,
    OneOf(
        {
            "group_zscore": group_zscore,
            "group_centred": group_advantages.group_centred,
            "batch_std": group_advantages.batch_std,
            "leave_one_out": group_advantages.leave_one_out,
            "greedy_baseline": group_advantages.greedy_baseline,
            "batch_whitened": batch_whitened,
            "step_zscore": steps_and_ends,
        },
        given=("rewards", "groups", "counted", "greedy_rewards", "scored"),
        bounds={
            "ddof": Field(ge=0, le=1),
            "eps": Field(gt=0),
            "gamma": Field(gt=0, le=1),
            "step_weight": Field(gt=0),
        },
    ),
]
ALONE = frozenset(("greedy_baseline", "batch_whitened"))
"""Kinds that do not compare the completions of a prompt: a group of one will do."""


def of_tokens(advantage: Choice, scored: Scored) -> Grid:
    """The advantage at each token; one of a whole completion is that of each of its tokens."""
    found = advantage(
        rewards=scored.totals(),
        groups=scored.groups,
        counted=scored.counted,
        greedy_rewards=scored.greedy_rewards() if "greedy_rewards" in advantage.given else None,
        scored=scored,
    )
    return found[:, None] * scored.mask if found.ndim == 1 else found
