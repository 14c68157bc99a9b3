"""The advantage of each token from the rewards of the steps of its completion."""

from typing import ClassVar, Literal

from pydantic import Field

from stages.algorithms.group_advantages import group_zscore
from stages.algorithms.token_advantages import step_zscore
from stages.loops.choices.scored import Grid, Scored
from stages.params import Params


class StepZscore(Params):
    """Process supervision of GRPO, beside its outcome supervision.

        A_t = step_weight * step_zscore_t + group_zscore(end rewards)

    Shao et al. 2024, section 4.1.3, where the first term stands alone; here it does where the end
    rewards of a group are all equal, as they are without a verifier. Both terms are normalised
    first, so the verifier weighs what its weight says, whatever the scale of the step rewards.
    A penalty of the divergence in the reward is subtracted from the end rewards.
    """

    kind: Literal["step_zscore"]
    least_group_size: ClassVar[int] = 2
    step_weight: float = Field(gt=0)
    """Of the normalised step rewards, against 1 of the normalised end rewards."""
    ddof: int = Field(ge=0, le=1)
    """n - ddof divides both variances."""
    eps: float = Field(gt=0)
    """Added to both standard deviations."""

    def __call__(self, scored: Scored) -> Grid:
        """See `step_zscore` and `group_zscore`.

        Raises:
            ValueError: the reward has no steps.
        """
        if scored.step_rewards is None or scored.step_ends is None:
            raise ValueError(
                "advantage step_zscore compares rewards of steps, found a reward without any: name "
                "a reward with a component of kind `process`, and a process model "
                "(train_process_reward/<name>/process_model) as the entry's scorer"
            )
        steps = step_zscore(
            scored.step_rewards,
            scored.step_ends,
            scored.groups,
            counted=scored.counted,
            ddof=self.ddof,
            eps=self.eps,
        )
        ends = group_zscore(
            scored.end_rewards - scored.penalties.sum(1),
            scored.groups,
            counted=scored.counted,
            ddof=self.ddof,
            eps=self.eps,
        )
        return self.step_weight * steps + scored.spread(ends)
