"""What an advantage is computed from."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

Grid = Float[Tensor, "batch token"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """Completions with their rewards, in any order.

    A kind that gives all tokens of a completion one advantage takes the sum of its step rewards;
    one that looks at tokens pays each where it belongs.
    """

    end_rewards: Float[Tensor, " batch"]
    """What each is paid when it has ended, besides `step_rewards`."""
    penalties: Float[Tensor, "batch token"]
    """Of the divergence, where it is part of the reward; else 0. Subtracted."""
    mask: Bool[Tensor, "batch token"]
    groups: Int[Tensor, " batch"]
    """Which prompt each completion answers."""
    counted: Bool[Tensor, " batch"]
    """False: left out of the baseline, advantage 0."""
    greedy_rewards: Callable[[], Float[Tensor, " batch"]]
    """Of the greedy completion of each one's prompt; sampled when first asked for."""
    step_rewards: Float[Tensor, "batch token"] | None = None
    """What is paid at the end of each step; None: no reward is of steps."""
    step_ends: Bool[Tensor, "batch token"] | None = None
    """Where steps end that have a reward."""

    def totals(self) -> Float[Tensor, " batch"]:
        """The reward of each completion, its penalties summed and subtracted."""
        rewards = self.end_rewards
        if self.step_rewards is not None:
            rewards = rewards + self.step_rewards.sum(1)
        return rewards - self.penalties.sum(1)

    def spread(self, advantages: Float[Tensor, " batch"]) -> Grid:
        """The same advantage at each token of a completion; 0 outside."""
        return advantages[:, None] * self.mask
