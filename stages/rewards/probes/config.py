"""How a policy is probed: the section `probe_policy`."""

from typing import Literal

from pydantic import Field

from stages.algorithms.selection.step_scores import Kind
from stages.engines.choosers import PolicyJudge
from stages.params import Params
from stages.rewards.feedback.label_rule import LabelRule
from stages.rewards.feedback.style import Style
from stages.sources import other_problems


class AttackedJudge(Params):
    """The judge that is attacked, and how it judges."""

    judge: PolicyJudge
    style: Style
    """Of the message: `short` for the embedded model, which has learned it."""
    constitution: Literal["correct", "harmless", "none"]
    """A principle is drawn from it for each pair."""
    rule: LabelRule
    num_pairs: int = Field(ge=1)
    """Pairs on which each attack is tried, one a problem."""


class ProbeConfig(Params):
    """How much is asked, scored and judged."""

    num_problems: int = Field(ge=1)
    """The first so many test problems are asked otherwise, scored and judged; as many training
    problems are asked with other numbers."""
    samples_per_problem: int = Field(ge=1)
    """Different completions of a problem that are padded, and whose steps are edited."""
    max_new_tokens: int = Field(ge=1)
    """Longest reply; that of `sample_candidates.test`, whose greedy replies are compared with."""
    process_score: Kind
    """How the scores of steps become one, as written and with other steps."""
    max_tokens: int = Field(ge=1)
    """A modified completion that is longer with its prompt is left out."""
    attack: AttackedJudge
    transfer: other_problems.Config
    """What the file of other problems is like, where an entry names one."""
    num_bootstrap: int = Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = Field(gt=0, lt=1)
    """Coverage of the intervals."""
