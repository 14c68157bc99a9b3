"""Proxy and true reward against the distance from the start policy: curves, fits, and verdicts.

Gao, Schulman and Hilton 2023, https://arxiv.org/abs/2210.10760, with one difference that matters:
the true reward is the answer checker's verdict, no larger reward model. Distances are measured:
of best-of-n from its pool (`selection/best_of_n`), of a trained policy from its own samples
(k1). Rewards are relative to the start and in units of their own standard deviation among the
start policy's completions of a problem, so that both fit one axis.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from pydantic import Field

from stages.algorithms.statistics import reward_over_distance
from stages.algorithms.statistics.intervals import bootstrap_means, percentiles, resamples
from stages.algorithms.statistics.reward_over_distance import Form, change_after_best
from stages.records.metrics import round_metric, with_interval
from stages.report.evaluation_config import Intervals

GRID = 60
"""Distances at which a fitted curve is drawn."""
GOLD, PROXY = "gold", "proxy"
BEST_OF_N, RUN = "best_of_n", "run"
Points = Float[np.ndarray, "problem point"]
Draws = Float[np.ndarray, "draw problem"]
"""The weight of each problem in each bootstrap resample; a row sums to 1."""


class OveroptimizationConfig(Intervals):
    """Fit of curves."""

    min_distance: float = Field(ge=0)
    """The logarithmic form, whose slope at 0 is infinite, is fitted to points farther away."""

    def intervals(self, values: Points, seed: int) -> list[dict[str, float]]:
        """The mean of each column with its interval over problems."""
        estimates = bootstrap_means(
            values, num_resamples=self.num_bootstrap, confidence=self.confidence, seed=seed
        )
        return [with_interval(*bounds) for bounds in zip(*estimates, strict=True)]

    def draws(self, num_problems: int, seed: int) -> Draws:
        """The bootstrap resamples that `intervals` are of."""
        return np.array([*resamples(num_problems, self.num_bootstrap, seed)]) / num_problems


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxyCurve:
    """Curve of proxy and true reward over the distance from the initial policy."""

    method: str
    """`best_of_n` or `run`."""
    name: str
    scorer: str
    """The proxy: `reward_model` or `ensemble`."""
    places: Sequence[int]
    """n, or training steps; the first is the start itself (1, or 0)."""
    form: Form
    kl: Points
    """KL divergence from the start policy, in nats: the distance d is the square root of its mean
    over problems."""
    proxy: Points
    """Mean score of what is chosen, or sampled, in the scorer's own unit."""
    gold: Points
    """Share of it that is right."""
    units: dict[str, float]
    """`proxy` and `gold`: the standard deviation that each is divided by."""

    def rewards(self) -> dict[str, Points]:
        """Both, relative to the start, in their units."""
        return {
            name: (values - values[:, :1]) / self.units[name]
            for name, values in ((PROXY, self.proxy), (GOLD, self.gold))
        }

    def distance(self, draws: Draws | None = None) -> Float[np.ndarray, "*draw point"]:
        """d = sqrt(mean KL over problems) at each place; with draws, a row for each resample."""
        kl = self.kl.mean(axis=0) if draws is None else draws @ self.kl
        # k1 may come out below 0 where the policy has hardly moved.
        return np.sqrt(np.maximum(kl, 0.0))


def measure_within_deviation(values: Sequence[Float[np.ndarray, " sample"]]) -> float:
    """Standard deviation within problems: s = sqrt(mean over problems of the variance of `values`).

    Within problems, since a reward model's scores of different problems cannot be compared.
    """
    return float(np.mean([of_problem.var() for of_problem in values])) ** 0.5


def measure_curves(curve: ProxyCurve, config: OveroptimizationConfig, seed: int) -> dict[str, Any]:
    """The points with intervals, both fits (their `band` is for a plot), and the verdict."""
    rewards, distances = curve.rewards(), [round_metric(distance) for distance in curve.distance()]
    draws = config.draws(len(curve.kl), seed)
    columns = {"kl": curve.kl, **rewards, "accuracy": curve.gold}
    estimates = {name: config.intervals(values, seed) for name, values in columns.items()}
    return {
        "method": curve.method,
        "name": curve.name,
        "scorer": curve.scorer,
        "units": {name: round(unit, 6) for name, unit in curve.units.items()},
        "points": [
            {"place": place, "distance": distances[number]}
            | {name: intervals[number] for name, intervals in estimates.items()}
            for number, place in enumerate(curve.places)
        ],
        "fits": {name: _fit(curve, values, draws, config) for name, values in rewards.items()},
        "farthest": max(distances),
        **_verdict(curve, config, seed),
    }


def _fit(
    curve: ProxyCurve, reward: Points, draws: Draws, config: OveroptimizationConfig
) -> dict[str, Any] | None:
    """The fitted form, its peak and its band; None where too few points are left to fix it.

    A peak comes with the share of the resamples that have one within the distances measured: a
    fit always has a formula for its peak, and outside of what was measured that is a guess.
    """
    form, distance, mean = curve.form, curve.distance(), reward.mean(0)
    near = config.min_distance if form == "logarithmic" else 0.0
    fit = reward_over_distance.fit_curve(distance, mean, form, min_distance=near)
    if np.isnan(fit).any():
        return None
    distances = curve.distance(draws)
    fits = reward_over_distance.fit_curve(distances, draws @ reward, form, min_distance=near)
    fits = fits[~np.isnan(fits).any(axis=1)]
    farthest = float(distance.max())
    grid = np.linspace(0.0, farthest, GRID)
    lines = reward_over_distance.reward_curve(fits, np.broadcast_to(grid, (len(fits), GRID)), form)
    low, high = percentiles(lines, config.confidence)
    peaks = reward_over_distance.peak_distance(fits, form)
    tail = (1.0 - config.confidence) / 2.0
    # The next number that was drawn, not one between two: between a number and none there is none.
    bounds = np.quantile(peaks, [tail, 1.0 - tail], method="inverted_cdf")
    peak = reward_over_distance.peak_distance(fit, form)
    missed = (mean - reward_over_distance.reward_curve(fit, distance, form))[distance > near]
    value = reward_over_distance.reward_curve(fit, grid, form)
    band = {"distance": grid, "value": value, "low": low, "high": high}
    return {
        "form": form,
        "residual": round(float((missed**2).mean() ** 0.5), 6),
        "alpha": round(float(fit[0]), 6),
        "beta": round(float(fit[1]), 6),
        "peak_distance": _finite(peak),
        "peak_distance_low": _finite(bounds[0]),
        "peak_distance_high": _finite(bounds[1]),
        "peak_reward": _finite(reward_over_distance.peak_reward(fit, form)),
        "peak_is_measured": bool(peak <= farthest),
        "peaks_measured": round(float((peaks <= farthest).mean()), 6),
        "band": {
            name: [round_metric(number) for number in numbers] for name, numbers in band.items()
        },
    }


def _finite(number: Any) -> float | None:
    """None where there is no peak, or one so far away that no float holds it."""
    return round(float(number), 6) if np.isfinite(number) else None


def _verdict(curve: ProxyCurve, config: OveroptimizationConfig, seed: int) -> dict[str, Any]:
    """Changes over the whole curve, and from the best point of the true reward to the end.

    The best point is that of the other half of the problems (`statistics/reward_over_distance`).
    """
    proxy = curve.rewards()[PROXY]
    gold_after, proxy_after = change_after_best(curve.gold, proxy)
    changes = {
        "accuracy_change": curve.gold[:, -1] - curve.gold[:, 0],
        "proxy_change": proxy[:, -1],
        "accuracy_after_best": gold_after,
        "proxy_after_best": proxy_after,
    }
    intervals = config.intervals(np.stack(list(changes.values()), axis=1), seed)
    metrics: dict[str, Any] = dict(zip(changes, intervals, strict=True))
    best = int(curve.gold.mean(axis=0).argmax())
    falls = metrics["accuracy_after_best"]["high"] < 0.0
    rises = metrics["proxy_after_best"]["low"] > 0.0
    return metrics | {"best_place": curve.places[best], "overoptimised": falls and rises}


def compare_curves(
    single: ProxyCurve, several: ProxyCurve, config: OveroptimizationConfig, seed: int
) -> dict[str, Any]:
    """The ensemble minus the single model, paired: same problems, same pools, same resamples.

    `accuracy_at_end`: at the largest n. `peak_shift`: of the distance at which the fitted true
    reward is largest; null where some resample's fit does not turn down.
    """
    (end,) = config.intervals(several.gold[:, -1:] - single.gold[:, -1:], seed)
    number = len(single.kl)
    draws = np.full((1, number), 1.0 / number), config.draws(number, seed)
    first, second = (
        np.concatenate([_peaks(curve, weights) for weights in draws]) for curve in (single, several)
    )
    shift = None
    if np.isfinite([first, second]).all():
        value, *resampled = (second - first).tolist()
        shift = with_interval(value, *percentiles(np.array(resampled), config.confidence))
    n = single.places[-1]
    return {"name": single.name, "n": n, "accuracy_at_end": end, "peak_shift": shift}


def _peaks(curve: ProxyCurve, weights: Draws) -> Float[np.ndarray, " draw"]:
    """The fitted peak of each weighting of the problems."""
    fitted = reward_over_distance.fit_curve(
        curve.distance(weights), weights @ curve.rewards()[GOLD], curve.form
    )
    return reward_over_distance.peak_distance(fitted, curve.form)
