"""A mean over problems with its confidence interval, or nothing where nothing was measured."""

import itertools
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from pydantic import Field, field_validator

from stages.algorithms.statistics import calibration, intervals
from stages.algorithms.statistics.calibration import Binning
from stages.algorithms.statistics.intervals import bootstrap_means, problem_means
from stages.params import Params
from stages.report.estimates import rounded

Interval = dict[str, float]
"""`{value, low, high}`."""


class Bins(Params):
    """What scores are sorted into when they are tested."""

    num_bins: int = Field(ge=1)
    """Bins of the reliability diagrams and of the calibration error."""
    binning: Literal["equal_mass", "equal_width"]
    """What the bins share: the number of predictions, or the width."""
    length_tolerance: int = Field(ge=0)
    """Pairs whose lengths differ by at most so many tokens are of matched lengths."""
    length_edges: list[int] = Field(min_length=1)
    """Where buckets of length differences begin; below the first there is one more."""

    @field_validator("length_edges")
    @classmethod
    def rising(cls, edges: list[int]) -> list[int]:
        """Each edge above the one before it."""
        if any(low >= high for low, high in itertools.pairwise(edges)):
            raise ValueError(f"expected rising edges, each once, found {edges}: sort them")
        return edges

    def binned_by(self) -> Binning:
        """The function that `binning` names."""
        match self.binning:
            case "equal_mass":
                return calibration.equal_mass
            case "equal_width":
                return calibration.equal_width


class QualityConfig(Bins):
    """How scores are tested."""

    num_bootstrap: int = Field(ge=100)
    """Resamples of the problems for each interval."""
    confidence: float = Field(gt=0, lt=1)
    """Coverage of the intervals."""


def over_problems(
    values: Float[np.ndarray, " row"],
    problems: Int[np.ndarray, " row"],
    config: QualityConfig,
    seed: int,
    *,
    is_rate: bool = True,
) -> Interval | None:
    """The mean over problems of the mean of each problem's rows; None without rows.

    A rate that is 0 or 1 on every problem has Wilson's interval: a bootstrap would claim
    certainty.
    """
    if not len(values):
        return None
    means = problem_means(values[:, None], problems)
    total = float(means.sum())
    if is_rate and (not means.any() or (means == 1.0).all()):
        bounds = intervals.wilson_interval(round(total), len(means), confidence=config.confidence)
        return named(total / len(means), *bounds)
    found = bootstrap_means(
        means, num_resamples=config.num_bootstrap, confidence=config.confidence, seed=seed
    )
    return named(*(float(column[0]) for column in found))


def calibration_error(
    probabilities: Float[np.ndarray, " row"],
    outcomes: Float[np.ndarray, " row"],
    problems: Int[np.ndarray, " row"],
    config: QualityConfig,
    seed: int,
) -> Interval:
    """The expected calibration error; its interval draws problems too."""
    return named(
        *calibration.expected_calibration_error(
            probabilities,
            outcomes,
            problems,
            num_bins=config.num_bins,
            binning=config.binned_by(),
            num_resamples=config.num_bootstrap,
            confidence=config.confidence,
            seed=seed,
        )
    )


def named(value: float, low: float, high: float) -> Interval:
    """The three with the decimals that metrics keep."""
    return {"value": rounded(value), "low": rounded(low), "high": rounded(high)}
