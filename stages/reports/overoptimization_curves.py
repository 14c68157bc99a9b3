"""The curves that overoptimization is read from: best-of-n on a pool, and runs step by step."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from stages.algorithms.selection import best_of_n_kl
from stages.algorithms.selection.best_of_n import LEAST_POOL, best_of_n
from stages.records.checkpoint_result import CheckpointResult
from stages.records.scored_pool import ScoredPool
from stages.reports import checkpoint_summary
from stages.reports.overoptimization import GOLD, PROXY, Curve, spread

BEST_OF_N, RUN = "best_of_n", "run"
SCORERS = ("reward_model", "ensemble")
Problems = Sequence[Float[np.ndarray, " sample"]]


def of_pools(name: str, scorer: str, rows: Sequence[ScoredPool]) -> Curve | str | None:
    """The curve of best-of-n by one scorer, why there is none, or None where it scored nothing.

    Args:
        name: the entry's.
        scorer: `reward_model` or `ensemble`.
        rows: what evaluate_best_of_n wrote.
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
            f"{LEAST_POOL} n: raise evaluate_best_of_n.num_samples to at least "
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
        kl=np.array([[best_of_n_kl.plug_in(one, n=n) for n in sizes] for one in scores]),
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
        rows: what evaluate_checkpoints wrote.
        units: scorer -> see `Curve`.
    """
    by_step = checkpoint_summary.table(rows)
    steps = list(by_step.values())
    found = []
    for scorer, unit in units.items():
        proxies = [checkpoint_summary.column(one, scorer) for one in steps]
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
    columns = [checkpoint_summary.column(one, name) for one in steps]
    assert all(column is not None for column in columns), name
    return np.stack([column for column in columns if column is not None], axis=1)
