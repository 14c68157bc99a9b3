"""The advantage of each token of sampled completions, without a value model."""

from collections.abc import Callable
from dataclasses import dataclass, fields
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
    mask: Bool[Tensor, "batch token"]
    """True at tokens."""
    groups: Int[Tensor, " batch"]
    """Which prompt each completion answers."""
    counted: Flags
    """False: left out of the baseline and of all statistics, advantage 0."""
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
        end_rewards, step_rewards, penalties, mask, counted: see `Scored`.
        gamma: discount per token.
        eps: added to the variance.
    """
    rewards = token_rewards(end_rewards, step_rewards, penalties, mask)
    mask = mask & counted[:, None]
    return masked_whiten(returns_to_go(rewards, mask, gamma=gamma), mask, eps=eps)


def token_rewards(
    end_rewards: Rewards,
    step_rewards: Grid | None,
    penalties: Grid,
    mask: Bool[Tensor, "batch token"],
) -> Grid:
    """What is paid at each token: a completion's reward at its last; see `Scored`."""
    rewards = -penalties if step_rewards is None else step_rewards - penalties
    last = (mask.sum(1, keepdim=True) - 1).clamp(min=0)
    return rewards.scatter_add(1, last, end_rewards[:, None])


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

        A_t = step_weight * step_zscore_t + group_zscore(end rewards - their penalties)

    Shao et al. 2024, section 4.1.3, where the first term stands alone; here it does where the end
    rewards of a group are all equal, as they are without a verifier. Both terms are normalised
    first, so the verifier weighs what its weight says, whatever the scale of the step rewards.

    Args:
        end_rewards, step_rewards, step_ends, penalties, mask, groups, counted: see `Scored`.
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
        given=("rewards", *(field.name for field in fields(Scored))),
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
    given = {field.name: getattr(scored, field.name) for field in fields(Scored)}
    if "greedy_rewards" in advantage.given:
        given["greedy_rewards"] = scored.greedy_rewards()
    found = advantage(rewards=scored.totals(), **given)
    return found[:, None] * scored.mask if found.ndim == 1 else found
