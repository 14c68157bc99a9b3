"""Every token costs the same."""

from typing import Literal

from pydantic import Field

from stages.params import Params
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.judged import Judged


class LengthPenalty(Params):
    """value = - tokens / per, the end-of-sequence token included."""

    kind: Literal["length_penalty"]
    per: int = Field(gt=0)
    """Tokens that cost 1 together."""

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """One value for each completion."""
        return Judged(totals=[-len(sample.token_ids) / self.per for sample in answered.samples])
