"""Section `evaluation` of params.yaml: what is measured of policies and rewards, and how surely."""

from pathlib import Path

from pydantic import Field

from stages.algorithms.selection.best_of_n import LEAST_POOL
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

    def check(self, num_samples: int, samples: Path) -> None:
        """Each of `ks` is small enough for this number of samples of a problem.

        Raises:
            ValueError: one is not.
        """
        if max(self.ks) * LEAST_POOL > num_samples:
            raise ValueError(
                f"evaluation.ks: expected numbers up to {num_samples // LEAST_POOL}, a quarter of "
                f"the {num_samples} samples of each problem in {samples}; found {max(self.ks)}. "
                f"Lower ks, or raise sampling.test.num_samples."
            )

    def quality(self, bins: Bins) -> QualityConfig:
        """How scores are tested, sorted into these bins."""
        return QualityConfig(
            **bins.model_dump(), num_bootstrap=self.num_bootstrap, confidence=self.confidence
        )
