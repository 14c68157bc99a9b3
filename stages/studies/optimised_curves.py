"""The curves of best-of-n on a pool and of runs by step, and what an ensemble changes of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.algorithms.selection.best_of_n import LEAST_POOL, best_of_n, kl_plug_in
from stages.algorithms.statistics import reward_over_distance
from stages.algorithms.statistics.intervals import bootstrap_means
from stages.studies import checkpoint_results
from stages.studies.checkpoint_results import CheckpointResult
from stages.studies.markdown import named
from stages.studies.proxy_curves import (
    GOLD,
    PROXY,
    Curve,
    OveroptimizationConfig,
    resamples,
    spread,
)
from stages.studies.scored_pools import ScoredPool

BEST_OF_N, RUN = "best_of_n", "run"
SCORERS = ("reward_model", "ensemble")
Problems = Sequence[Float[np.ndarray, " sample"]]


def of_pools(name: str, scorer: str, rows: Sequence[ScoredPool]) -> Curve | str | None:
    """The curve of best-of-n by one scorer, why there is none, or None where it scored nothing.

    Args:
        name: the entry's.
        scorer: `reward_model` or `ensemble`.
        rows: what `scored_pools` found.
    """
    scores = [getattr(row, scorer) for row in rows]
    if None in scores:
        return None
    verdicts = [np.array(row.correct, dtype=np.float64) for row in rows]
    arrays = [np.array(one, dtype=np.float64) for one in scores]
    return trouble(arrays, verdicts) or of_best_of_n(name, scorer, arrays, verdicts)


def trouble(scores: Problems, verdicts: Problems) -> str | None:
    """Why a pool shows nothing of best-of-n, in words; None where it does."""
    smallest = min(len(one) for one in scores)
    if smallest < 2 * LEAST_POOL:
        return (
            f"the pool has {smallest} completions of a problem, and best-of-n needs "
            f"{LEAST_POOL} n: raise best_of_n.num_samples of the study to at least "
            f"{2 * LEAST_POOL}"
        )
    if spread(verdicts) == 0.0:
        return "no problem of the pool has both right and wrong completions"
    if spread(scores) == 0.0:
        return "all completions of a problem have one score"
    return None


def of_best_of_n(name: str, scorer: str, scores: Problems, verdicts: Problems) -> Curve:
    """Every n from 1 to a quarter of the pool, each from the whole pool, without bias.

    Args:
        name: the entry's.
        scorer: its name.
        scores: of each problem's completions, by the scorer.
        verdicts: 1.0 where the completion is right.
    """
    assert trouble(scores, verdicts) is None, "nothing to choose from, or by"
    sizes = range(1, min(len(one) for one in scores) // LEAST_POOL + 1)
    pairs = list(zip(scores, verdicts, strict=True))
    return Curve(
        method=BEST_OF_N,
        name=name,
        scorer=scorer,
        places=sizes,
        form="quadratic",
        kl=np.array([[kl_plug_in(one, n=n) for n in sizes] for one in scores]),
        proxy=np.array([[best_of_n(one, one, n=n) for n in sizes] for one in scores]),
        gold=np.array([[best_of_n(one, right, n=n) for n in sizes] for one, right in pairs]),
        units={PROXY: spread(scores), GOLD: spread(verdicts)},
    )


def of_run(
    name: str,
    rows: Sequence[CheckpointResult],
    units: Mapping[str, Mapping[str, float]],
) -> list[Curve]:
    """A run's steps, by each scorer that both scored them and has a unit.

    Args:
        name: the run's.
        rows: what the study `checkpoints` found.
        units: scorer -> see `Curve`.
    """
    by_step = checkpoint_results.table(rows)
    steps = list(by_step.values())
    found = []
    for scorer, unit in units.items():
        proxies = [checkpoint_results.column(one, scorer) for one in steps]
        measured = [one for one in proxies if one is not None]
        if len(measured) == len(steps):
            found.append(
                Curve(
                    method=RUN,
                    name=name,
                    scorer=scorer,
                    places=list(by_step),
                    form="logarithmic",
                    kl=_grid(steps, "kl_k1"),
                    proxy=np.stack(measured, axis=1),
                    gold=_grid(steps, "correct"),
                    units={PROXY: unit[PROXY], GOLD: unit[GOLD]},
                )
            )
    return found


def _grid(
    steps: Sequence[Sequence[CheckpointResult]], name: str
) -> Float[np.ndarray, "problem point"]:
    columns = [checkpoint_results.column(one, name) for one in steps]
    assert all(column is not None for column in columns), name
    return np.stack([column for column in columns if column is not None], axis=1)


def effects(
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
        effect(curve, curves[name, several], config, seed)
        for (name, scorer), curve in curves.items()
        if scorer == single and (name, several) in curves
    ]


def effect(
    single: Curve, several: Curve, config: OveroptimizationConfig, seed: int
) -> dict[str, Any]:
    """The ensemble minus the single model, paired: same problems, same pools, same resamples.

    `accuracy_at_end`: at the largest n. `peak_shift`: of the distance at which the fitted true
    reward is largest; null where some resample's fit does not turn down.
    """
    ends = several.gold[:, -1:] - single.gold[:, -1:]
    bounds = bootstrap_means(
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
