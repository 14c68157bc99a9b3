"""Your own reward."""

from typing import Literal

from stages.params import Params
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.each_completion import each
from stages.rewards.judged import Judged


class Own(Params):
    """What `reward` of the entry's file in stages/rewards/own/ gives each completion."""

    kind: Literal["own"]

    def __call__(self, answered: Answered, available: Available) -> Judged:
        """One value for each completion.

        Raises:
            ValueError: the entry names no file, or its function raised.
        """
        if available.own is None:
            raise ValueError("it needs a function: the entry's word `own` is none")
        return each(answered, available.own)
