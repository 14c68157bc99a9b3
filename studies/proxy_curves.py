"""Proxy and true reward against the distance from the initial policy: curves and verdicts.

Curves as in Gao, Schulman and Hilton 2023, https://arxiv.org/abs/2210.10760, with one important
difference: the true reward is the answer checker's verdict, not a larger reward model. Distances
are measured: of best-of-n from its pool (`selection/best_of_n`), of a trained policy from its
samples (k1). Rewards are relative to the initial policy's, in units of their standard deviation
among its completions of a problem, so that both fit one axis.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics.intervals import bootstrap_means
from stages.records.metrics import round_metric, with_interval
from stages.report.evaluation_config import Intervals

GOLD, PROXY = "gold", "proxy"
BEST_OF_N, RUN = "best_of_n", "run"
Points = Float[np.ndarray, "problem point"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxyCurve:
    """Curve of proxy and true reward over the distance from the initial policy."""

    method: str
    """`best_of_n` or `run`."""
    name: str
    scorer: str
    """The proxy: `reward_model` or `ensemble`."""
    places: Sequence[int]
    """n, or training steps; the first (1, or 0) is the initial policy."""
    kl: Points
    """KL divergence from the initial policy, in nats; the distance d is the square root of its mean
    over problems."""
    proxy: Points
    """Mean score of the chosen, or sampled, completions, in the scorer's unit."""
    gold: Points
    """Share of these completions that is right."""
    units: dict[str, float]
    """`proxy` and `gold`: the standard deviation that each is divided by."""

    def rewards(self) -> dict[str, Points]:
        """Proxy and true reward, relative to the initial policy, in their units."""
        return {
            name: (values - values[:, :1]) / self.units[name]
            for name, values in ((PROXY, self.proxy), (GOLD, self.gold))
        }

    def distance(self) -> Float[np.ndarray, " point"]:
        """d = sqrt(mean KL over problems) at each place."""
        # k1 may be below 0 if the policy has hardly changed.
        return np.sqrt(np.maximum(self.kl.mean(axis=0), 0.0))


def measure_within_deviation(values: Sequence[Float[np.ndarray, " sample"]]) -> float:
    """Standard deviation within problems: s = sqrt(mean over problems of the variance of `values`).

    A reward model's scores of different problems cannot be compared.
    """
    return float(np.mean([of_problem.var() for of_problem in values])) ** 0.5


def estimate_columns(values: Points, config: Intervals, seed: int) -> list[dict[str, float]]:
    """Mean of each column with its interval over problems."""
    estimates = bootstrap_means(
        values, num_resamples=config.num_bootstrap, confidence=config.confidence, seed=seed
    )
    return [with_interval(*bounds) for bounds in zip(*estimates, strict=True)]


def measure_curve(curve: ProxyCurve, config: Intervals, seed: int) -> dict[str, Any]:
    """The points of a curve with intervals, and the verdict.

    The verdict is on the changes over the whole curve, and from the best point of the true reward
    to the end; the best point is chosen on the other half of the problems.
    """
    rewards, distances = curve.rewards(), curve.distance()
    columns = {"kl": curve.kl, **rewards, "accuracy": curve.gold}
    estimates = {name: estimate_columns(values, config, seed) for name, values in columns.items()}
    gold_after, proxy_after = change_after_best(curve.gold, rewards[PROXY])
    changes = {
        "accuracy_change": curve.gold[:, -1] - curve.gold[:, 0],
        "proxy_change": rewards[PROXY][:, -1],
        "accuracy_after_best": gold_after,
        "proxy_after_best": proxy_after,
    }
    intervals = estimate_columns(np.stack(list(changes.values()), axis=1), config, seed)
    verdict: dict[str, Any] = dict(zip(changes, intervals, strict=True))
    falls = verdict["accuracy_after_best"]["high"] < 0.0
    rises = verdict["proxy_after_best"]["low"] > 0.0
    return {
        "method": curve.method,
        "name": curve.name,
        "scorer": curve.scorer,
        "units": {name: round(unit, 6) for name, unit in curve.units.items()},
        "points": [
            {"place": place, "distance": round_metric(distances[number])}
            | {name: of_name[number] for name, of_name in estimates.items()}
            for number, place in enumerate(curve.places)
        ],
        **verdict,
        "best_place": curve.places[int(curve.gold.mean(axis=0).argmax())],
        "overoptimised": falls and rises,
    }


def compare_ends(
    single: ProxyCurve, several: ProxyCurve, config: Intervals, seed: int
) -> dict[str, Any]:
    """Accuracy of the ensemble minus the single model's at the largest n, paired."""
    (gain,) = estimate_columns(several.gold[:, -1:] - single.gold[:, -1:], config, seed)
    return {"name": single.name, "n": single.places[-1], "accuracy_at_end": gain}


def change_after_best(
    values: Float[np.ndarray, "problem point"], *more_values: Float[np.ndarray, "problem point"]
) -> list[Float[np.ndarray, " problem"]]:
    """Change from a curve's best point to its last, for each problem.

    The best point of a noisy curve is partly luck: on the same problems the last point would look
    worse even if the curve is level. Hence the best point is chosen on one half of the problems
    (the even rows) and the change is measured on the other (the odd rows), and vice versa: the mean
    is then unbiased for the change after a point chosen like this. Among ties the last point is
    chosen.

    The best point is chosen by `values`. Returns the change of `values`, then of each of
    `more_values`, from that point to the last.
    """
    num_problems, num_points = values.shape
    assert num_problems >= 2, "no halves of a single problem"
    rows = np.arange(num_problems, dtype=np.int64)
    best = np.empty(num_problems, dtype=np.int64)
    for half in (0, 1):
        means = values[1 - half :: 2].mean(axis=0)
        best[half::2] = num_points - 1 - int(means[::-1].argmax())
    return [array[:, -1] - array[rows, best] for array in (values, *more_values)]
