"""Working, then one final line `#### n`."""

from typing import Literal

from stages.params import Params
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.each_completion import each
from stages.rewards.format_reward import has_format
from stages.rewards.judged import Judged


class FinalLine(Params):
    """1 where a completion has the format that the demonstrations teach, else 0."""

    kind: Literal["final_line"]

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """See `format_reward.has_format`."""
        return each(answered, lambda _, text: has_format(text))
