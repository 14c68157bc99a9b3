"""Everything that a completion of a problem's pool can be chosen by, and weighed by in a vote.

Scorers that were learned (`ensemble`, `reward_model`, `outcome`, `process`), the policy itself
(`mean_logprob`) and what needs no model at all: `format` (any completion in the format of the
demonstrations, and the majority of those), `longest`, `shortest`. A scorer that does not beat
these has learned nothing worth its cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from stages.algorithms.selection.step_scores import KINDS
from stages.records.pools import Completion, Score
from stages.rewards import format_reward
from stages.rewards.aggregation import Aggregation

SCALARS = ("reward_model", "ensemble", "outcome")
PROCESS = "process"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolScores:
    """One scorer's view of a problem's pool."""

    values: Float[np.ndarray, " sample"]
    """The highest is chosen."""
    weights: Float[np.ndarray, " sample"] | None
    """What a sample counts in a vote, from 0 to 1; None: this scorer gives no weights."""


def by_scorer(
    pool: Sequence[Completion], rows: Sequence[Score] | None, aggregation: Aggregation | None
) -> dict[str, PoolScores]:
    """Each scorer's view of one pool.

    Weights are fixed transforms, since a monotone transform changes a vote: the logistic function
    of a logit (of a Bradley-Terry model the probability to beat an answer of reward 0), a process
    score as it is, exp of a mean log-prob. The mean log-prob is of the tempered distribution that
    the pool was drawn from; to choose by it: Chen et al. 2021
    (https://arxiv.org/abs/2107.03374), section 3.3.

    Args:
        pool: a problem's completions.
        rows: their scores in the same order; None where nothing was scored.
        aggregation: how the scores of steps become one.

    Raises:
        ValueError: there are scores of steps and no aggregation.
    """
    found: dict[str, PoolScores] = {}
    for name in SCALARS:
        if rows and name in rows[0].scores:
            logits = np.array([row.scores[name] for row in rows])
            found[name] = PoolScores(values=logits, weights=1.0 / (1.0 + np.exp(-logits)))
    if rows and rows[0].steps is not None:
        if aggregation is None:
            raise ValueError(
                "expected a choice of how the scores of steps become one, found none, and there "
                "are scores of steps: name an entry of choose_aggregation as the entry's "
                "`aggregation`"
            )
        found[PROCESS] = PoolScores(
            values=aggregated(rows, KINDS[aggregation.best_of]),
            weights=aggregated(rows, KINDS[aggregation.weighted]),
        )
    texts = [row.completion for row in pool]
    kept = {text: float(format_reward.has_format(text)) for text in dict.fromkeys(texts)}
    formatted = np.array([kept[text] for text in texts])
    lengths = np.array([len(row.completion_ids) for row in pool], dtype=np.float64)
    logprobs = _rounded([row.logprob_sum / len(row.completion_ids) for row in pool])
    found["mean_logprob"] = PoolScores(values=logprobs, weights=np.exp(logprobs))
    found["format"] = PoolScores(values=formatted, weights=formatted)
    found["longest"] = PoolScores(values=lengths, weights=None)
    found["shortest"] = PoolScores(values=-lengths, weights=None)
    return found


def aggregated(
    rows: Sequence[Score], aggregate: Callable[[Sequence[float]], float]
) -> Float[np.ndarray, " sample"]:
    """The scores of each completion's steps as one."""
    # Products of the same numbers in another order differ by rounding, and are ties.
    return _rounded([aggregate(_present(row.steps)) for row in rows])


def _rounded(values: Sequence[float]) -> Float[np.ndarray, " sample"]:
    return np.round(np.array(values, dtype=np.float64), 9)


def _present(value: T | None) -> T:
    assert value is not None, "a pool is scored by a process model whole or not at all"
    return value
