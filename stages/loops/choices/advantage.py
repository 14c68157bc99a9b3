"""The advantage of each token of sampled completions, without a value model."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from stages.algorithms.aggregation import masked_whiten
from stages.algorithms.group_advantages import (
    batch_std,
    greedy_baseline,
    group_centred,
    group_zscore,
    leave_one_out,
)
from stages.algorithms.token_advantages import returns_to_go
from stages.loops.choices.scored import Grid, Scored
from stages.loops.choices.step_advantage import StepZscore
from stages.params import Params


class GroupZscore(Params):
    """(r - mean) / (std + eps) within the group: GRPO."""

    kind: Literal["group_zscore"]
    least_group_size: ClassVar[int] = 2
    ddof: int = Field(ge=0, le=1)
    """n - ddof divides the variance: 1 in TRL and verl, 0 in some."""
    eps: float = Field(gt=0)
    """Added to the standard deviation: 1e-4 in TRL, 1e-6 in verl."""

    def __call__(self, scored: Scored) -> Grid:
        """See `group_zscore`."""
        return scored.spread(
            group_zscore(
                scored.totals(),
                scored.groups,
                counted=scored.counted,
                ddof=self.ddof,
                eps=self.eps,
            )
        )


class GroupCentred(Params):
    """r - mean of the group: Dr. GRPO."""

    kind: Literal["group_centred"]
    least_group_size: ClassVar[int] = 2

    def __call__(self, scored: Scored) -> Grid:
        """See `group_centred`."""
        return scored.spread(group_centred(scored.totals(), scored.groups, counted=scored.counted))


class BatchStd(Params):
    """(r - mean of the group) / (std of the whole batch + eps)."""

    kind: Literal["batch_std"]
    least_group_size: ClassVar[int] = 2
    ddof: int = Field(ge=0, le=1)
    """n - ddof divides the variance."""
    eps: float = Field(gt=0)
    """Added to the standard deviation."""

    def __call__(self, scored: Scored) -> Grid:
        """See `batch_std`."""
        return scored.spread(
            batch_std(
                scored.totals(),
                scored.groups,
                counted=scored.counted,
                ddof=self.ddof,
                eps=self.eps,
            )
        )


class LeaveOneOut(Params):
    """r - mean of the others of the group: RLOO."""

    kind: Literal["leave_one_out"]
    least_group_size: ClassVar[int] = 2

    def __call__(self, scored: Scored) -> Grid:
        """See `leave_one_out`."""
        return scored.spread(leave_one_out(scored.totals(), scored.groups, counted=scored.counted))


class GreedyBaseline(Params):
    """r - reward of the greedy completion: ReMax."""

    kind: Literal["greedy_baseline"]
    least_group_size: ClassVar[int] = 1

    def __call__(self, scored: Scored) -> Grid:
        """See `greedy_baseline`."""
        return scored.spread(
            greedy_baseline(
                scored.totals(),
                scored.groups,
                counted=scored.counted,
                greedy_rewards=scored.greedy_rewards(),
            )
        )


class BatchWhitened(Params):
    """Reward to go, penalties token by token, whitened over the batch's tokens: REINFORCE++."""

    kind: Literal["batch_whitened"]
    least_group_size: ClassVar[int] = 1
    gamma: float = Field(gt=0, le=1)
    """Discount per token."""
    eps: float = Field(gt=0)
    """Added to the variance."""

    def __call__(self, scored: Scored) -> Grid:
        """See `returns_to_go` and `masked_whiten`."""
        last = (scored.mask.sum(1, keepdim=True) - 1).clamp(min=0)
        rewards = -scored.penalties
        if scored.step_rewards is not None:
            rewards = rewards + scored.step_rewards
        rewards = rewards.scatter_add(1, last, scored.end_rewards[:, None])
        mask = scored.mask & scored.counted[:, None]
        return masked_whiten(returns_to_go(rewards, mask, gamma=self.gamma), mask, eps=self.eps)


Advantage = Annotated[
    GroupZscore
    | GroupCentred
    | BatchStd
    | LeaveOneOut
    | GreedyBaseline
    | BatchWhitened
    | StepZscore,
    Field(discriminator="kind"),
]
