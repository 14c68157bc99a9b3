"""Are probabilities right as often as they say? Reliability bins and the calibration error."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from stages.algorithms.statistics.intervals import Interval, percentiles, resamples

Binning = Callable[[Float[np.ndarray, " sample"], int], Int[np.ndarray, " sample"]]
"""Probabilities and a number of bins -> the bin of each, from 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReliabilityBin:
    """Predictions of about the same probability."""

    confidence: float
    """Mean predicted probability."""
    accuracy: float
    """How often it came true: the mean outcome."""
    count: int
    """Predictions in the bin, at least 1."""


def equal_mass(
    probabilities: Float[np.ndarray, " sample"], num_bins: int
) -> Int[np.ndarray, " sample"]:
    """Bins with as many predictions each as can be: bin = floor(K rank / N), rank from 0.

    Equal predictions have one rank, the lowest of theirs, and stay together: no bin depends on
    the order of rows. So many equal ones may leave a bin empty; it has no members then.
    Nguyen and O'Connor 2015 (https://arxiv.org/abs/1508.05154), section 3.
    """
    ranks = np.searchsorted(np.sort(probabilities), probabilities, side="left")
    return ranks * num_bins // max(1, len(probabilities))


def equal_width(
    probabilities: Float[np.ndarray, " sample"], num_bins: int
) -> Int[np.ndarray, " sample"]:
    """Bins [0, 1/K), [1/K, 2/K), ... of the unit interval; 1 is in the last.

    Guo et al. 2017 (https://arxiv.org/abs/1706.04599), section 2, whose bins are closed above.
    Where predictions cluster, most bins are nearly empty: `equal_mass` is steadier.
    """
    return np.minimum((probabilities * num_bins).astype(np.int64), num_bins - 1)


def preferred_side(
    margins: Float[np.ndarray, " pair"], labels: Float[np.ndarray, " pair"]
) -> tuple[Float[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
    """Confidence in the side that the model prefers, and how far the label agrees.

        confidence = sigmoid(|margin|),  outcome = label where margin > 0, 1 - label where < 0

    with margin = r_1 - r_2 and label = P(the first is better). Pairs stand with the chosen side
    first, so sigmoid(margin) against the label would have outcome 1 in every bin: a diagram of
    the order of the columns. Told of the preferred side, nothing changes when the two
    completions of a pair are swapped: the same error as counting each pair in both directions.
    A tie has confidence 1/2 and outcome 1/2: it prefers neither.
    """
    confidence = 1.0 / (1.0 + np.exp(-np.abs(margins)))
    return confidence, 0.5 + np.sign(margins) * (labels - 0.5)


def reliability_bins(
    probabilities: Float[np.ndarray, " sample"],
    outcomes: Float[np.ndarray, " sample"],
    *,
    num_bins: int,
    binning: Binning,
) -> list[ReliabilityBin]:
    """The bins that have members, by rising confidence; arguments as below."""
    bins = binning(probabilities, num_bins)
    return [
        ReliabilityBin(
            confidence=float(probabilities[bins == number].mean()),
            accuracy=float(outcomes[bins == number].mean()),
            count=int((bins == number).sum()),
        )
        for number in np.unique(bins)
    ]


def expected_calibration_error(
    probabilities: Float[np.ndarray, " sample"],
    outcomes: Float[np.ndarray, " sample"],
    problems: Int[np.ndarray, " sample"],
    *,
    num_bins: int,
    binning: Binning,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> Interval:
    """Mean distance between confidence and accuracy over the bins, with a bootstrap interval.

        ECE = Σ_b count_b / N |accuracy_b - confidence_b| = Σ_b |Σ_{i in b} (q_i - y_i)| / N

    Guo et al. 2017 (https://arxiv.org/abs/1706.04599), eq. 3. Problems are drawn with
    replacement, all predictions of one together, into the bins of the whole sample.

    A sum of absolute values has a floor: a calibrated model has an error above 0, of the order
    sqrt(K / N), and resamples add their own noise to that, so near 0 the interval may lie above
    the value. Compare models on the same predictions and K only.

    Args:
        probabilities: q, predicted, in [0, 1].
        outcomes: y, what came true: 0, 1, or a soft label between.
        problems: the number of each prediction's problem, from 0.
        num_bins: K.
        binning: `equal_mass` or `equal_width`.
        num_resamples: see `intervals`, also for the rest.
        confidence: coverage.
        seed: of the draws.
    """
    assert len(probabilities) > 0, "no predictions"
    bins = binning(probabilities, num_bins)
    num_problems = int(problems.max()) + 1
    gaps = np.zeros((num_problems, num_bins))
    np.add.at(gaps, (problems, bins), probabilities - outcomes)
    counts = np.bincount(problems, minlength=num_problems).astype(np.float64)
    draws = resamples(num_problems, num_resamples, seed)
    errors = np.array([np.abs(times @ gaps).sum() / (times @ counts) for times in draws])
    low, high = percentiles(errors, confidence)
    value = float(np.abs(gaps.sum(axis=0)).sum() / len(probabilities))
    return Interval(value, float(low), float(high))
