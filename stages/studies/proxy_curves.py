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
from stages.algorithms.statistics.intervals import bootstrap_means
from stages.algorithms.statistics.reward_over_distance import Form, change_after_best
from stages.params import Params
from stages.studies.markdown import named, rounded

GRID = 60
"""Distances at which a fitted curve is drawn."""
GOLD, PROXY = "gold", "proxy"


class OveroptimizationConfig(Params):
    """How curves are fitted."""

    min_distance: float = Field(ge=0)
    """The logarithmic form, whose slope at 0 is infinite, is fitted to points farther away."""
    num_bootstrap: int = Field(ge=100)
    """Resamples of the problems for each interval and band."""
    confidence: float = Field(gt=0, lt=1)
    """Coverage of intervals and bands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One way of optimising, as it goes away from the start policy."""

    method: str
    """`best_of_n` or `run`."""
    name: str
    """The entry's."""
    scorer: str
    """The proxy: `reward_model` or `ensemble`."""
    places: Sequence[int]
    """n, or training steps; the first is the start itself (1, or 0)."""
    form: Form
    kl: Float[np.ndarray, "problem point"]
    """From the start policy, in nats; its mean over problems is what d is the square root of."""
    proxy: Float[np.ndarray, "problem point"]
    """Mean score of what is chosen, or sampled, in the scorer's own unit."""
    gold: Float[np.ndarray, "problem point"]
    """Share of it that is right."""
    units: dict[str, float]
    """`proxy` and `gold`: the standard deviation that each is divided by."""


def spread(values: Sequence[Float[np.ndarray, " sample"]]) -> float:
    """The standard deviation among the completions of a problem: of the mean variance.

    Within problems, since a reward model's scores of different problems cannot be compared.
    """
    return float(np.mean([one.var() for one in values])) ** 0.5


def measure(curve: Curve, config: OveroptimizationConfig, seed: int) -> dict[str, Any]:
    """The points with intervals, both fits with their peaks, and what happens after the best.

    The `band` of each fit is for a plot: `without_bands` leaves them out.
    """
    rewards = {
        name: (values - values[:, :1]) / curve.units[name]
        for name, values in ((PROXY, curve.proxy), (GOLD, curve.gold))
    }
    draws = resamples(len(curve.kl), config.num_bootstrap, seed)
    distance = _distance(curve.kl)
    drawn_distance = np.sqrt(np.maximum(draws @ curve.kl, 0.0))
    farthest = float(distance.max())
    return {
        "method": curve.method,
        "name": curve.name,
        "scorer": curve.scorer,
        "units": {name: round(unit, 6) for name, unit in curve.units.items()},
        "points": _points(curve, rewards, config, seed),
        "fits": {
            name: _fit(distance, values.mean(0), drawn_distance, draws @ values, curve.form, config)
            for name, values in rewards.items()
        },
        "farthest": round(farthest, 6),
        **_verdict(curve, rewards, config, seed),
    }


def without_bands(measured: dict[str, Any]) -> dict[str, Any]:
    """What `measure` found, as metrics."""
    fits = {
        name: fit and {key: value for key, value in fit.items() if key != "band"}
        for name, fit in measured["fits"].items()
    }
    return measured | {"fits": fits}


def resamples(num_problems: int, num_draws: int, seed: int) -> Float[np.ndarray, "draw problem"]:
    """The weight of each problem in each bootstrap resample; a row sums to 1."""
    stream = np.random.default_rng(seed)
    counts = [
        np.bincount(stream.integers(0, num_problems, num_problems), minlength=num_problems)
        for _ in range(num_draws)
    ]
    return np.array(counts) / num_problems


def _distance(kl: Float[np.ndarray, "problem point"]) -> Float[np.ndarray, " point"]:
    # k1 may come out below 0 where the policy has hardly moved.
    return np.sqrt(np.maximum(kl.mean(axis=0), 0.0))


def _points(
    curve: Curve,
    rewards: dict[str, Float[np.ndarray, "problem point"]],
    config: OveroptimizationConfig,
    seed: int,
) -> list[dict[str, Any]]:
    """Of each place: divergence, distance, both rewards in their units, and the accuracy itself."""
    columns = {"kl": curve.kl, **rewards, "accuracy": curve.gold}
    found = {
        name: bootstrap_means(
            values, num_resamples=config.num_bootstrap, confidence=config.confidence, seed=seed
        )
        for name, values in columns.items()
    }
    distances = rounded(_distance(curve.kl).tolist())
    return [
        {"place": place, "distance": distances[number]}
        | {
            name: named(*(float(bound[number]) for bound in bounds))
            for name, bounds in found.items()
        }
        for number, place in enumerate(curve.places)
    ]


def _fit(
    distance: Float[np.ndarray, " point"],
    reward: Float[np.ndarray, " point"],
    drawn_distance: Float[np.ndarray, "draw point"],
    drawn_reward: Float[np.ndarray, "draw point"],
    form: Form,
    config: OveroptimizationConfig,
) -> dict[str, Any] | None:
    """The fitted form, its peak and its band; None where too few points are left to fix it.

    A peak is told with the share of the resamples that have one within the distances measured: a
    fit always has a formula for its peak, and outside of what was measured that is a guess.
    """
    near = config.min_distance if form == "logarithmic" else 0.0
    found = reward_over_distance.fit(distance, reward, form, min_distance=near)
    if np.isnan(found).any():
        return None
    drawn = reward_over_distance.fit(drawn_distance, drawn_reward, form, min_distance=near)
    drawn = drawn[~np.isnan(drawn).any(axis=1)]
    grid = np.linspace(0.0, float(distance.max()), GRID)
    tail = (1.0 - config.confidence) / 2.0
    lines = reward_over_distance.curve(drawn, np.broadcast_to(grid, (len(drawn), GRID)), form)
    low, high = np.quantile(lines, [tail, 1.0 - tail], axis=0)
    peaks = reward_over_distance.peak_distance(drawn, form)
    # The next number that was drawn, not one between two: between a number and none there is none.
    bounds = np.quantile(peaks, [tail, 1.0 - tail], method="inverted_cdf")
    peak = float(reward_over_distance.peak_distance(found, form))
    return {
        "form": form,
        "residual": round(_residual(found, distance, reward, form, near), 6),
        "alpha": round(float(found[0]), 6),
        "beta": round(float(found[1]), 6),
        "peak_distance": _finite(peak),
        "peak_distance_low": _finite(float(bounds[0])),
        "peak_distance_high": _finite(float(bounds[1])),
        "peak_reward": _finite(float(reward_over_distance.peak_reward(found, form))),
        "peak_is_measured": bool(peak <= distance.max()),
        "peaks_measured": round(float((peaks <= distance.max()).mean()), 6),
        "band": {
            "distance": rounded(grid.tolist()),
            "value": rounded(reward_over_distance.curve(found, grid, form).tolist()),
            "low": rounded(low.tolist()),
            "high": rounded(high.tolist()),
        },
    }


def _residual(
    found: Float[np.ndarray, " 2"],
    distance: Float[np.ndarray, " point"],
    reward: Float[np.ndarray, " point"],
    form: Form,
    near: float,
) -> float:
    """The root mean square of what the fit misses its points by."""
    missed = (reward - reward_over_distance.curve(found, distance, form))[distance > near]
    return float((missed**2).mean() ** 0.5)


def _finite(number: float) -> float | None:
    """None where there is no peak, or one so far away that no float holds it."""
    return round(number, 6) if np.isfinite(number) else None


def _verdict(
    curve: Curve,
    rewards: dict[str, Float[np.ndarray, "problem point"]],
    config: OveroptimizationConfig,
    seed: int,
) -> dict[str, Any]:
    """What optimisation changed in all, and from the truth's best point to its end.

    The best point is that of the other half of the problems (`statistics/reward_over_distance`).
    """
    gold_after, proxy_after = change_after_best(curve.gold, rewards[PROXY])
    gained = curve.gold[:, -1] - curve.gold[:, 0]
    changes = {
        "accuracy_change": gained,
        "proxy_change": rewards[PROXY][:, -1],
        "accuracy_after_best": gold_after,
        "proxy_after_best": proxy_after,
    }
    bounds = bootstrap_means(
        np.stack(list(changes.values()), axis=1),
        num_resamples=config.num_bootstrap,
        confidence=config.confidence,
        seed=seed,
    )
    found: dict[str, Any] = {
        name: named(*(float(bound) for bound in one))
        for name, *one in zip(changes, *bounds, strict=True)
    }
    best = int(curve.gold.mean(axis=0).argmax())
    falls = found["accuracy_after_best"]["high"] < 0.0
    rises = found["proxy_after_best"]["low"] > 0.0
    return found | {"best_place": curve.places[best], "overoptimised": falls and rises}
