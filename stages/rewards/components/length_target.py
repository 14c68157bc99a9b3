"""How far a completion is from a wanted length."""

from typing import Literal

from pydantic import Field

from stages.params import Params
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.judged import Judged


class LengthTarget(Params):
    """value = - |tokens - target| / target, the end-of-sequence token included.

    Aggarwal and Welleck, "L1" (2025), eq. 1, https://arxiv.org/abs/2503.04697, with
    alpha = weight / target. Departure: one target for all prompts, which does not stand in them.
    """

    kind: Literal["length_target"]
    target: int = Field(gt=0)
    """Tokens."""

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """One value for each completion."""
        lengths = [len(sample.token_ids) for sample in answered.samples]
        return Judged(totals=[-abs(length - self.target) / self.target for length in lengths])
