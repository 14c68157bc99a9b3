"""The score of the entry's model."""

from typing import Literal

from stages.params import Params
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.judged import Judged


class Scorer(Params):
    """A reward model's, an ensemble's or an outcome model's score.

    Of a process model, its score of each step, as `process` with summed credit.
    """

    kind: Literal["scorer"]

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """What the entry's model says.

        Raises:
            ValueError: the entry names none.
        """
        if available.scorer is None:
            raise ValueError("it needs a model: the entry's word `scorer` is no_model")
        return available.scorer()
