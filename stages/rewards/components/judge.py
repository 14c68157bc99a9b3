"""The grade that a language model gives."""

from typing import Literal

from stages.params import Params
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.judged import Judged


class Judge(Params):
    """The entry's scorer, a policy, is asked about each completion by itself."""

    kind: Literal["judge"]

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """What the entry's model says.

        Raises:
            ValueError: the entry names no policy as its scorer.
        """
        if available.judge is None:
            raise ValueError("it needs a judge: the entry's word `scorer` must name a policy")
        return available.judge()
