"""Proxy and true reward against the distance from the start policy: curves and verdicts.

Curves after Gao, Schulman and Hilton 2023, https://arxiv.org/abs/2210.10760, with one difference
that matters: the true reward is the answer checker's verdict, no larger reward model. Distances are
measured: of best-of-n from its pool (`selection/best_of_n`), of a trained policy from its own
samples (k1). Rewards are relative to the start and in units of their own standard deviation among
the start policy's completions of a problem, so that both fit one axis.
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
    """n, or training steps; the first is the start itself (1, or 0)."""
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

    def distance(self) -> Float[np.ndarray, " point"]:
        """d = sqrt(mean KL over problems) at each place."""
        # k1 may come out below 0 where the policy has hardly moved.
        return np.sqrt(np.maximum(self.kl.mean(axis=0), 0.0))


def measure_within_deviation(values: Sequence[Float[np.ndarray, " sample"]]) -> float:
    """Standard deviation within problems: s = sqrt(mean over problems of the variance of `values`).

    Within problems, since a reward model's scores of different problems cannot be compared.
    """
    return float(np.mean([of_problem.var() for of_problem in values])) ** 0.5


def estimate_columns(values: Points, config: Intervals, seed: int) -> list[dict[str, float]]:
    """The mean of each column with its interval over problems."""
    estimates = bootstrap_means(
        values, num_resamples=config.num_bootstrap, confidence=config.confidence, seed=seed
    )
    return [with_interval(*bounds) for bounds in zip(*estimates, strict=True)]


def measure_curve(curve: ProxyCurve, config: Intervals, seed: int) -> dict[str, Any]:
    """The points with intervals, and the verdict.

    The verdict is on the changes over the whole curve, and from the best point of the true reward
    to the end, where the best point is that of the other half of the problems.
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
    """Accuracy of the ensemble minus that of the single model at the largest n, paired."""
    (gain,) = estimate_columns(several.gold[:, -1:] - single.gold[:, -1:], config, seed)
    return {"name": single.name, "n": single.places[-1], "accuracy_at_end": gain}


def change_after_best(
    values: Float[np.ndarray, "problem point"], *more_values: Float[np.ndarray, "problem point"]
) -> list[Float[np.ndarray, " problem"]]:
    """Change of each problem from a curve's best point to its last.

    The best point of a noisy curve is partly luck, so that on the same problems the last one
    would look worse even where the curve is level. Hence the best point is chosen on one half of
    the problems (the even rows) and the change is taken on the other (the odd rows), and the
    other way round: the mean is then unbiased for the change after points so chosen. Of points
    that tie the last is taken.

    The best point is chosen by `values`, and what follows are the changes of these, then of each of
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
