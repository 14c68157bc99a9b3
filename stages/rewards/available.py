"""What an entry gives its reward besides the completions."""

from collections.abc import Callable
from dataclasses import dataclass

from stages.chooser import Chooser
from stages.records.problems import Prompt
from stages.rewards.judged import Judged


@dataclass(frozen=True, kw_only=True, slots=True)
class Available:
    """Models and functions that components of a reward ask; None: the entry names none."""

    scorer: Callable[[], Judged] | None
    """The entry's model on these completions: a score for each, a reward for each step, or both."""
    judge: Chooser | None
    """The entry's model where it is a policy that judges: it chooses between two answers."""
    own: Callable[[Prompt, str], float] | None
    """The user's own reward: `reward` of the entry's file in stages/rewards/own/."""
    max_new_tokens: int
    """Where completions are cut."""


NOTHING = Available(scorer=None, judge=None, own=None, max_new_tokens=1)
"""No model and no function: enough for components that look at the completions alone."""
