"""Detection of the first wrong step of a solution: ProcessBench's accuracies, F1, threshold.

The right answer for an *erroneous* solution is the index of its first wrong step, for a *correct*
one -1.

    error accuracy   = share of the erroneous solutions whose first error is found exactly
    correct accuracy = share of the correct solutions in which no error is found
    F1               = harmonic mean of both, 2 e c / (e + c)

"ProcessBench" (Zheng et al. 2024), https://arxiv.org/abs/2412.06559, section 3.3. F1 is 0 if the
answer is always -1, and if it never is.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from stages.algorithms.statistics.intervals import Interval, percentiles, resamples

Numbers = Int[np.ndarray, " solution"]
Cases = Float[np.ndarray, " case"]
NO_ERROR = -1
"""Answer for a solution without an error."""
NAMES = ("error_accuracy", "correct_accuracy", "f1")


def first_below(scores: Sequence[float], threshold: float) -> int:
    """Index of the first step whose score, P(right), is below the threshold; -1 if none is.

    With (0.9, 0.4, 0.2): 1 at a threshold of 0.5, 2 at 0.3, -1 at 0.2.
    """
    return next((step for step, score in enumerate(scores) if score < threshold), NO_ERROR)


def harmonic_mean(first: Cases, second: Cases) -> Cases:
    """2 a b / (a + b); 0 if both are 0."""
    total = first + second
    return np.divide(2 * first * second, total, out=np.zeros_like(total), where=total != 0)


def accuracy_intervals(
    predicted: Numbers,
    first_errors: Numbers,
    problems: Numbers,
    *,
    baseline: Numbers | None = None,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, Interval]:
    """Error accuracy, correct accuracy and F1, each with a bootstrap interval over problems.

    With a `baseline`, differences from the baseline's, paired by drawing the same problems.

    `predicted`: the step found in each solution, or -1; `problems`: a number from 0 per problem,
    whose solutions are drawn together. A draw without an erroneous or a correct solution has no F1
    and is left out; a ValueError if all are. The interval of an accuracy of 0 or 1 has width 0.
    """
    scores = _scores(predicted, first_errors, problems, num_resamples, seed)
    if baseline is not None:
        scores = scores - _scores(baseline, first_errors, problems, num_resamples, seed)
    bounds = percentiles(scores[1:], confidence)
    rows = np.stack([scores[0], *bounds], axis=1).tolist()
    return {name: Interval(*row) for name, row in zip(NAMES, rows, strict=True)}


def _scores(
    predicted: Numbers, first_errors: Numbers, problems: Numbers, num_resamples: int, seed: int
) -> Float[np.ndarray, "draw 3"]:
    """`NAMES` of all solutions, then of each resample; NaN if it lacks a kind of solution."""
    erroneous = first_errors != NO_ERROR
    if erroneous.all() or not erroneous.any():
        raise ValueError(
            f"expected erroneous and correct solutions, found {int(erroneous.sum())} erroneous of "
            f"{len(erroneous)}: an F1 needs both. Use more solutions."
        )
    exact = predicted == first_errors
    columns = np.stack([exact & erroneous, exact & ~erroneous, erroneous, ~erroneous], axis=1)
    sums = np.zeros((int(problems.max()) + 1, 4))
    np.add.at(sums, problems, columns.astype(np.float64))
    once = np.ones(len(sums))
    totals = np.stack(
        [times @ sums for times in (once, *resamples(len(sums), num_resamples, seed))]
    )
    kinds = totals[:, 2:]
    rates = np.divide(totals[:, :2], kinds, out=np.full(kinds.shape, np.nan), where=kinds > 0)
    return np.column_stack([rates, harmonic_mean(*rates.T)])


class ChosenThreshold(NamedTuple):
    """Threshold, and its F1 on the solutions that it was chosen on."""

    threshold: float
    f1: float


def best_threshold(
    scores: Sequence[Sequence[float]], first_errors: Sequence[int]
) -> ChosenThreshold:
    """Threshold with the highest F1.

    The first error e of a solution is found exactly by the thresholds t with

        score_e < t <= min(score_0, ..., score_{e-1})

    and none is found in a correct solution by t <= min of all its scores. So F1 is constant
    between neighbouring ends of these intervals, and one threshold in each gap is tried. Of gaps
    with the same F1 the middle of the widest is chosen: it is furthest from the sample's scores.

    ProcessBench's code chooses on a part of the benchmark; choose on other problems than the
    reported ones.

    With scores (0.9, 0.4) whose second step is wrong and (0.8, 0.6) which is correct, any
    t in (0.4, 0.6] gets both: 0.5, F1 1. Scores are P(right) of each step. A ValueError without
    erroneous or without correct solutions.
    """
    solutions = list(zip(scores, first_errors, strict=True))
    lowest = [min(steps) for steps, first in solutions if first == NO_ERROR]
    exact = [
        (steps[first], min(steps[:first], default=math.inf))
        for steps, first in solutions
        if first != NO_ERROR
    ]
    # The first error is never found exactly if an earlier step scores as low.
    opens, closes = np.array([ends for ends in exact if ends[0] < ends[1]]).reshape(-1, 2).T
    num_erroneous = len(first_errors) - len(lowest)
    if not num_erroneous or not lowest:
        raise ValueError(
            f"expected erroneous and correct solutions to choose a threshold on, found "
            f"{num_erroneous} erroneous of {len(first_errors)}. Use more solutions."
        )
    ends = np.unique([*opens, *closes[np.isfinite(closes)], *lowest])
    # Gap i is (ends[i - 1], ends[i]]; the first begins anywhere and the last has no end.
    below = np.array([-math.inf, *ends])
    opened, closed, lost = (
        np.searchsorted(np.sort(values), below, side="right") for values in (opens, closes, lowest)
    )
    f1 = harmonic_mean((opened - closed) / num_erroneous, (len(lowest) - lost) / len(lowest))
    lows, highs = np.clip(below, 0.0, 1.0), np.array([*ends, 1.0])
    best = max(range(len(f1)), key=lambda gap: (f1[gap], highs[gap] - lows[gap]))
    threshold = float(lows[best] + highs[best]) / 2
    if threshold <= below[best]:
        # Adjacent floats have no number between them; above 1 there are no scores.
        is_last = best == len(ends)
        threshold = math.nextafter(float(below[best]), math.inf) if is_last else float(ends[best])
    return ChosenThreshold(threshold, float(f1[best]))
