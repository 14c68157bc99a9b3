"""The advantage of each token of sampled completions, without a value model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from stages.algorithms import group_advantages
from stages.algorithms.aggregation import masked_whiten
from stages.algorithms.group_advantages import group_zscore
from stages.algorithms.token_advantages import returns_to_go, step_zscore
from stages.choice import Choice, OneOf

Grid = Float[Tensor, "batch token"]
Rewards = Float[Tensor, " batch"]
Flags = Bool[Tensor, " batch"]


def batch_whitened(
    end_rewards: Rewards,
    step_rewards: Grid | None,
    penalties: Grid,
    mask: Bool[Tensor, "batch token"],
    counted: Flags,
    *,
    gamma: float,
    eps: float,
) -> Grid:
    """Reward to go, penalties token by token, whitened over the batch's tokens: REINFORCE++.

    See `returns_to_go` and `masked_whiten`.

    Args:
        end_rewards: paid at a completion's last token.
        step_rewards: paid where they stand.
        penalties: subtracted where they stand.
        mask: True at tokens.
        counted: False: left out of the statistics, advantage 0.
        gamma: discount per token.
        eps: added to the variance.
    """
    last = (mask.sum(1, keepdim=True) - 1).clamp(min=0)
    rewards = -penalties
    if step_rewards is not None:
        rewards = rewards + step_rewards
    rewards = rewards.scatter_add(1, last, end_rewards[:, None])
    mask = mask & counted[:, None]
    return masked_whiten(returns_to_go(rewards, mask, gamma=gamma), mask, eps=eps)


def steps_and_ends(
    end_rewards: Rewards,
    step_rewards: Grid | None,
    step_ends: Bool[Tensor, "batch token"] | None,
    penalties: Grid,
    mask: Bool[Tensor, "batch token"],
    groups: Int[Tensor, " batch"],
    counted: Flags,
    *,
    step_weight: float,
    ddof: int,
    eps: float,
) -> Grid:
    """Process supervision of GRPO, beside its outcome supervision.

        A_t = step_weight * step_zscore_t + group_zscore(end rewards)

    Shao et al. 2024, section 4.1.3, where the first term stands alone; here it does where the end
    rewards of a group are all equal, as they are without a verifier. Both terms are normalised
    first, so the verifier weighs what its weight says, whatever the scale of the step rewards.
    A penalty of the divergence in the reward is subtracted from the end rewards.

    Args:
        end_rewards, step_rewards, penalties, mask, counted: as of `batch_whitened`.
        step_ends: where a step with a reward ends.
        groups: which prompt each completion answers.
        step_weight: of the normalised step rewards, against 1 of the normalised end rewards.
        ddof: n - ddof divides both variances.
        eps: added to both standard deviations.

    Raises:
        ValueError: the reward has no steps.
    """
    if step_rewards is None or step_ends is None:
        raise ValueError(
            "advantage step_zscore compares rewards of steps, found a reward without any: learn on "
            "a reward of kind process, or on one with a component of kind process"
        )
    steps = step_zscore(step_rewards, step_ends, groups, counted=counted, ddof=ddof, eps=eps)
    ends = group_zscore(end_rewards - penalties.sum(1), groups, counted=counted, ddof=ddof, eps=eps)
    return step_weight * steps + ends[:, None] * mask


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
        given=(
            "rewards",
            "groups",
            "counted",
            "greedy_rewards",
            "end_rewards",
            "step_rewards",
            "step_ends",
            "penalties",
            "mask",
        ),
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """Completions with their rewards, in any order.

    A kind that gives all tokens of a completion one advantage takes the sum of its step rewards;
    one that looks at tokens pays each where it belongs.
    """

    end_rewards: Rewards
    """Paid when a completion has ended, besides `step_rewards`."""
    penalties: Grid
    """Of the divergence, where it is part of the reward; else 0. Subtracted."""
    mask: Bool[Tensor, "batch token"]
    groups: Int[Tensor, " batch"]
    """Which prompt each completion answers."""
    counted: Flags
    """False: left out of the baseline, advantage 0."""
    greedy_rewards: Callable[[], Rewards]
    """Of the greedy completion of each one's prompt; sampled when first asked for."""
    step_rewards: Grid | None = None
    """Paid at the end of each step; None: no reward is of steps."""
    step_ends: Bool[Tensor, "batch token"] | None = None
    """Where steps end that have a reward."""

    def totals(self) -> Rewards:
        """The reward of each completion, its penalties summed and subtracted."""
        rewards = self.end_rewards
        if self.step_rewards is not None:
            rewards = rewards + self.step_rewards.sum(1)
        return rewards - self.penalties.sum(1)


def of_tokens(advantage: Choice, scored: Scored) -> Grid:
    """The advantage at each token; one of a whole completion is that of each of its tokens."""
    greedy = scored.greedy_rewards() if "greedy_rewards" in advantage.given else None
    found = advantage(
        rewards=scored.totals(),
        groups=scored.groups,
        counted=scored.counted,
        greedy_rewards=greedy,
        end_rewards=scored.end_rewards,
        step_rewards=scored.step_rewards,
        step_ends=scored.step_ends,
        penalties=scored.penalties,
        mask=scored.mask,
    )
    return found[:, None] * scored.mask if found.ndim == 1 else found
