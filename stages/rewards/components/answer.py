"""Is the final answer right?"""

from typing import Literal

from stages.params import Params
from stages.rewards.answer_checker import is_correct
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.each_completion import each
from stages.rewards.judged import Judged


class Answer(Params):
    """1 where the answer checker takes the last final answer for the gold one, else 0."""

    kind: Literal["answer"]

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """See `answer_checker.is_correct`."""
        return each(answered, lambda prompt, text: is_correct(text, prompt.answer))
