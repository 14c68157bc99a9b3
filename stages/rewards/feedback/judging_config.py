"""Who judges pairs, what it is asked, and what becomes of its verdicts."""

from typing import Literal

from pydantic import Field

from stages.engines import choosers
from stages.params import Params
from stages.rewards.feedback.label_rule import LabelRule
from stages.rewards.feedback.style import Style


class JudgePreset(Params):
    """Who judges, and how."""

    judge: choosers.Judge
    style: Style
    """Of the message: `short` for the embedded model, which has learned it."""
    constitution: Literal["correct", "harmless", "none"]
    """A principle is drawn from it for each pair."""
    reasoning: choosers.Reasoning | None
    """What the judge writes before it chooses; null: nothing."""
    max_pairs_per_problem: int = Field(ge=1)
    rule: LabelRule
    injection_pairs: int = Field(ge=0)
    """Held-out pairs on which each attack on the judge is tried."""
