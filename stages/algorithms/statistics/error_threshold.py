"""The threshold below which a step's score calls it wrong, chosen for the best F1."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics.first_error import NONE, harmonic_mean


class Chosen(NamedTuple):
    """A threshold, and the F1 that it has on what it was chosen on."""

    threshold: float
    f1: float


def best_threshold(scores: Sequence[Sequence[float]], first_errors: Sequence[int]) -> Chosen:
    """The threshold with the highest F1 of `first_error`, of all there are.

    The first error e of a solution is found exactly by the thresholds t with

        score_e < t <= min(score_0, ..., score_{e-1})

    and none is found in a correct solution by t <= min of all its scores. So F1 is constant
    between neighbouring ends of these intervals: every threshold is tried by trying each gap.
    Of gaps with the same F1 the widest is taken, and of it the middle: what is furthest from
    any score of the sample.

    ProcessBench's own code takes the threshold that is best on a part of the benchmark itself;
    choose on other problems than those that are reported.

    With scores (0.9, 0.4) whose second step is wrong and (0.8, 0.6) which is correct, any
    t in (0.4, 0.6] gets both: 0.5, F1 1.

    Args:
        scores: P(right) of each step of each solution, from 0 to 1.
        first_errors: the first wrong step of each solution, or -1.

    Raises:
        ValueError: there is no erroneous, or no correct, solution.
    """
    opens: list[float] = []
    closes: list[float] = []
    lowest: list[float] = []
    for own, first in zip(scores, first_errors, strict=True):
        if first == NONE:
            lowest.append(min(own))
            continue
        closing = min(own[:first], default=math.inf)
        # Never found exactly where an earlier step scores as low.
        if own[first] < closing:
            opens.append(own[first])
            closes.append(closing)
    num_erroneous = len(first_errors) - len(lowest)
    if not num_erroneous or not lowest:
        raise ValueError(
            f"expected erroneous and correct solutions to choose a threshold on, found "
            f"{num_erroneous} erroneous of {len(first_errors)}. Use more solutions."
        )
    ends = np.unique([one for one in (*opens, *closes, *lowest) if math.isfinite(one)])
    # Gap i is (ends[i - 1], ends[i]]; the first begins anywhere and the last has no end.
    below = np.concatenate([np.array([-math.inf]), ends])
    found = _up_to(opens, below) - _up_to(closes, below)
    kept = len(lowest) - _up_to(lowest, below)
    f1 = harmonic_mean(found / num_erroneous, kept / len(lowest))
    left, right = np.clip(below, 0.0, 1.0), np.concatenate([ends, np.array([1.0])])
    best = max(range(len(f1)), key=lambda gap: (f1[gap], right[gap] - left[gap]))
    threshold = float(left[best] + right[best]) / 2
    if threshold <= below[best]:
        # Neighbouring numbers have no middle; above 1 there is none that scores reach.
        is_last = best == len(ends)
        threshold = math.nextafter(float(below[best]), math.inf) if is_last else float(ends[best])
    return Chosen(threshold, float(f1[best]))


def _up_to(values: Sequence[float], ends: Float[np.ndarray, " end"]) -> Float[np.ndarray, " end"]:
    """How many of `values` are at most each end."""
    return np.searchsorted(np.sort(values), ends, side="right").astype(np.float64)
