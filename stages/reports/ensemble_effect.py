"""Does choosing by an ensemble, and not by one reward model, move the peak of best-of-n?"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from stages.algorithms.statistics import reward_over_distance
from stages.algorithms.statistics.bootstrap import mean_intervals
from stages.reports.overoptimization import Curve, OveroptimizationConfig, resamples
from stages.reports.overoptimization_curves import SCORERS
from stages.reports.problem_interval import named


def every(
    curves: Mapping[tuple[str, str], Curve], config: OveroptimizationConfig, seed: int
) -> list[dict[str, Any]]:
    """`compare` for each name that has a curve by both.

    Args:
        curves: by (name, scorer).
        config: resamples.
        seed: of the resamples.
    """
    single, several = SCORERS
    return [
        compare(curve, curves[name, several], config, seed)
        for (name, scorer), curve in curves.items()
        if scorer == single and (name, several) in curves
    ]


def compare(
    single: Curve, several: Curve, config: OveroptimizationConfig, seed: int
) -> dict[str, Any]:
    """The ensemble minus the single model, paired: same problems, same pools, same resamples.

    `accuracy_at_end`: at the largest n. `peak_shift`: of the distance at which the fitted true
    reward is largest; null where some resample's fit does not turn down.
    """
    ends = several.gold[:, -1:] - single.gold[:, -1:]
    bounds = mean_intervals(
        ends, num_resamples=config.num_bootstrap, confidence=config.confidence, seed=seed
    )
    draws = resamples(len(single.kl), config.num_bootstrap, seed)
    everything = np.full((1, len(single.kl)), 1.0 / len(single.kl))
    peaks = [
        np.concatenate([_peaks(curve, everything), _peaks(curve, draws)])
        for curve in (single, several)
    ]
    shift = None
    if np.isfinite(peaks).all():
        value, *drawn = (peaks[1] - peaks[0]).tolist()
        tail = (1.0 - config.confidence) / 2.0
        shift = named(value, *(float(one) for one in np.quantile(drawn, [tail, 1.0 - tail])))
    return {
        "name": single.name,
        "n": single.places[-1],
        "accuracy_at_end": named(*(float(bound[0]) for bound in bounds)),
        "peak_shift": shift,
    }


def _peaks(curve: Curve, weights: np.ndarray) -> np.ndarray:
    """The fitted peak of each weighting of the problems."""
    gold = (curve.gold - curve.gold[:, :1]) / curve.units["gold"]
    distance = np.sqrt(np.maximum(weights @ curve.kl, 0.0))
    fitted = reward_over_distance.fit(distance, weights @ gold, curve.form)
    return reward_over_distance.peak_distance(fitted, curve.form)
