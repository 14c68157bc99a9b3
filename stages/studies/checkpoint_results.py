"""What the policies along a run did: rows, and their means over problems by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.algorithms.statistics.intervals import bootstrap_means
from stages.studies.markdown import named


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointResult:
    """One row of `data/studies/checkpoints/<run>/rows/<seed>/problems.jsonl`.

    Means over the problem's samples, whose random streams are the same at every step.
    """

    step: int
    """Training steps taken: 0 for the start, the last for the policy that the run wrote."""
    id: str
    """The problem's id."""
    correct: float
    """Share of the samples whose final answer is right: the true reward."""
    reward_model: float | None
    """Mean score by the single reward model; null where there is none."""
    ensemble: float | None
    """Mean score by the ensemble, its members' scores made one as its preset says."""
    ensemble_std: float | None
    """Mean over the samples of the standard deviation between the members' scores."""
    kl_k1: float
    """log(policy / reference), summed over a completion's tokens: nats, may be negative."""
    kl_k3: float
    """The estimator k3 of each token, summed over a completion's tokens: nats."""
    tokens: float
    """Tokens of a completion."""
    entropy: float
    """Of the policy's next-token distribution, over all tokens of the samples: nats a token."""
    truncated: float
    """Share of the samples cut at the length limit."""
    repetition: float
    """Share of a completion's runs of four tokens that it has said before."""
    num_distinct: int
    """Different completions among the samples: only these were scored."""


QUANTITIES = (
    "correct", "reward_model", "ensemble", "ensemble_std", "kl_k1", "kl_k3", "tokens", "entropy",
    "truncated", "repetition",
)  # fmt: skip
"""Fields of a row that are averaged over problems."""
PAIRED = ("correct", "reward_model", "ensemble")
"""Those whose difference from the start, paired by problem, is told too."""


def table(rows: Sequence[CheckpointResult]) -> dict[int, list[CheckpointResult]]:
    """Step -> its rows, the same problems in the same order at every step.

    Raises:
        ValueError: there is no step 0, or the steps do not have the same problems.
    """
    found: dict[int, list[CheckpointResult]] = {}
    for row in rows:
        found.setdefault(row.step, []).append(row)
    ids = {step: [row.id for row in one] for step, one in found.items()}
    if 0 not in found or any(one != ids[0] for one in ids.values()):
        raise ValueError(
            f"expected rows of step 0 and of the same problems at every step, found steps "
            f"{sorted(found)} with {[len(one) for one in ids.values()]} problems. Rerun "
            f"the study checkpoints, which writes them."
        )
    return {step: found[step] for step in sorted(found)}


def column(rows: Sequence[CheckpointResult], name: str) -> Float[np.ndarray, " problem"] | None:
    """A quantity of each problem; None where nothing measured it."""
    values = [getattr(row, name) for row in rows]
    return None if None in values else np.array(values, dtype=np.float64)


def summarise(
    rows: Sequence[CheckpointResult], *, num_resamples: int, confidence: float, seed: int
) -> dict[str, Any]:
    """`steps`: of each, `{quantity: {value, low, high}}`; `best_step`, by accuracy.

    `<quantity>_gain` is the paired difference from the start; null where nothing scores. Of
    steps that are equally accurate the first is the best: it is nearest to the start. Its own
    accuracy is the largest of several noisy numbers, so report another split's.
    """
    by_step = table(rows)
    steps = {
        str(step): _means(one, by_step[0], num_resamples, confidence, seed)
        for step, one in by_step.items()
    }
    best = max(by_step, key=lambda step: (steps[str(step)]["correct"]["value"], -step))
    return {"num_problems": len(by_step[0]), "best_step": best, "steps": steps}


def _means(
    rows: Sequence[CheckpointResult],
    start: Sequence[CheckpointResult],
    num_resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    columns = {name: column(rows, name) for name in QUANTITIES}
    for name in PAIRED:
        now, before = columns[name], column(start, name)
        columns[f"{name}_gain"] = None if now is None or before is None else now - before
    measured = {name: values for name, values in columns.items() if values is not None}
    found = bootstrap_means(
        np.stack(list(measured.values()), axis=1),
        num_resamples=num_resamples,
        confidence=confidence,
        seed=seed,
    )
    intervals = {
        name: named(*(float(bound) for bound in bounds))
        for name, *bounds in zip(measured, *found, strict=True)
    }
    return {name: intervals.get(name) for name in columns}
