"""What is estimated of a policy: a number for each problem, and its mean."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.records.results import ProblemResult

DIGITS = 6
"""Decimals that metrics keep: far below any interval's width, above the rounding of a sum in
another order."""
MEAN, GREEDY, MAJORITY, PASS = "mean_accuracy", "greedy_accuracy", "majority", "pass"
BEST_OF, WEIGHTED = "best_of", "weighted"
FIELDS = {
    MEAN: "mean_accuracy",
    "mean_strict": "mean_strict",
    "mean_lenient": "mean_lenient",
    GREEDY: "greedy_correct",
    "greedy_strict": "greedy_strict",
    "greedy_lenient": "greedy_lenient",
    "readable_rate": "readable_rate",
    "format_rate": "format_rate",
    "truncation_rate": "truncation_rate",
    "mean_tokens": "mean_tokens",
}
"""Estimate -> the field of ProblemResult that holds it. The others are `<method>/<n>`."""


def columns(results: Sequence[ProblemResult]) -> dict[str, Float[np.ndarray, " problem"]]:
    """Every estimate of every problem, by its name: `mean_accuracy`, `best_of/outcome/8`."""
    found = {
        name: np.array([float(getattr(row, field)) for row in results])
        for name, field in FIELDS.items()
    }
    return found | {
        f"{method}/{n}": np.array([row.accuracy_at[method][n] for row in results])
        for method, of_n in results[0].accuracy_at.items()
        for n in of_n
    }


def means(results: Sequence[ProblemResult]) -> dict[str, Any]:
    """The content of an evaluation's metrics.json.

    The mean of each column over problems. Of `auc/<reward>` and `auc_in_format/<reward>` over the
    problems that have both right and wrong samples; absent where none has.
    """
    found: dict[str, Any] = {
        "num_problems": len(results),
        "num_samples": results[0].num_samples,
        **{name: rounded(values.mean()) for name, values in columns(results).items()},
    }
    for kind in ("auc", "auc_in_format"):
        for name in results[0].auc:
            areas = [area for row in results if (area := getattr(row, kind)[name]) is not None]
            if areas:
                found[f"{kind}/{name}"] = rounded(sum(areas) / len(areas))
    return found


def rounded(number: float) -> float:
    """A plain float with `DIGITS` decimals; no negative zero."""
    return round(float(number), DIGITS) + 0.0
