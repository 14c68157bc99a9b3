"""A policy's accuracy on dev problems, by which the best policy is chosen.

Choosing by the test problems would make the chosen policy's own test result too good: of several
numbers the largest is one that chance has raised.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stages.algorithms.statistics.bootstrap import mean_intervals
from stages.records.completion import Completion
from stages.records.prompt import Prompt
from stages.reports.rounding import rounded
from stages.rewards import answer_checker


def summarise(
    problems: Sequence[tuple[Prompt, Sequence[Completion]]],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """`{value, low, high, problems, samples}`: the mean accuracy of one random sample."""
    means = np.array(
        [
            sum(answer_checker.is_correct(row.completion, prompt.answer) for row in pool)
            / len(pool)
            for prompt, pool in problems
        ]
    )
    ((value,), (low,), (high,)) = mean_intervals(
        means[:, None], num_resamples=num_resamples, confidence=confidence, seed=seed
    )
    bounds = dict(zip(("value", "low", "high"), rounded([value, low, high]), strict=True))
    return bounds | {"problems": len(problems), "samples": len(problems[0][1])}
