"""Section `evaluation` of params.yaml: what is measured of policies and rewards, and how surely."""

from pydantic import Field

from stages.params import Params
from stages.report.problem_interval import Bins, QualityConfig


class EvaluationConfig(Params):
    """The same for every policy and every reward, so that their numbers can be compared."""

    ks: list[int] = Field(min_length=1)
    """Samples that a vote or a choice is among."""
    num_draws: int = Field(gt=0)
    """Random subsets that a vote by weight is averaged over."""
    num_bootstrap: int = Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = Field(gt=0, lt=1)
    """Coverage of the intervals."""
    decimals: int = Field(ge=3, le=9)
    """Digits kept of a score: those below are rounding, and would break ties at random."""

    def quality(self, bins: Bins) -> QualityConfig:
        """How scores are tested, sorted into these bins."""
        return QualityConfig(
            **bins.model_dump(), num_bootstrap=self.num_bootstrap, confidence=self.confidence
        )
