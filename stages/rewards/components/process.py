"""What a process reward model says of each step."""

from typing import Literal

import torch
from pydantic import Field

from stages.algorithms.token_advantages import min_credit
from stages.params import Params
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.judged import Judged


class Process(Params):
    """P(right so far) - zero at the last token of each step, or of the worst step alone.

    Steps are paid when they end: PPO credits them there, and the advantage `step_zscore` gives
    a token what the steps from its own on earn. Summed credit pays for every further step that
    is above `zero`, so the policy learns to write more of them, or, where most are below, fewer;
    min credit (`token_advantages`) does not.
    """

    kind: Literal["process"]
    credit: Literal["sum", "min"]
    """`sum`: every step earns its own; `min`: the worst step's reward is the only one."""
    zero: float = Field(ge=0, le=1)
    """The score that is worth nothing; 0.5: a step that is rather wrong costs. `step_zscore`
    does not see it."""

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """What the entry's model says.

        Raises:
            ValueError: the entry names none, or one that does not judge steps.
        """
        if available.scorer is None:
            raise ValueError("it needs a model: the entry's word `scorer` is no_model")
        judged = available.scorer()
        if judged.step_rewards is None or judged.step_ends is None:
            raise ValueError(
                "it needs a model that judges steps: the entry's word `scorer` must be "
                "train_process_reward/<name>/process_model"
            )
        rewards, ends = judged.step_rewards, judged.step_ends
        if self.credit == "min":
            rewards, ends = min_credit(rewards, ends)
        return Judged(
            totals=judged.totals,
            step_rewards=torch.where(ends, rewards - self.zero, 0.0),
            step_ends=ends,
            metrics=judged.metrics,
        )
