"""A penalty that grows before the length limit is reached."""

from typing import Literal

import torch
from pydantic import Field

from stages.algorithms.soft_overlong import soft_overlong
from stages.params import Params
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.judged import Judged


class Overlong(Params):
    """DAPO's soft punishment, from 0 to -1: see `soft_overlong`."""

    kind: Literal["overlong"]
    buffer: int = Field(gt=0)
    """Tokens before max_new_tokens over which the punishment grows."""

    def __call__(self, answered: Answered, available: Available) -> Judged:
        """One value for each completion."""
        lengths = torch.tensor([len(sample.token_ids) for sample in answered.samples])
        found = soft_overlong(lengths, max_length=available.max_new_tokens, buffer=self.buffer)
        return Judged(totals=found.tolist())
