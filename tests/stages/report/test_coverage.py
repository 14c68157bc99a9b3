"""Problems that only one of two policies solves, and pass@k up to all samples."""

import numpy as np

from stages.records.pools import ProblemResult
from stages.report import coverage, estimates


def test_counts_by_hand():
    policy = np.array([[0.0, 0.0625, 1.0, 0.0], [0.5, 0.5, 0.5, 0.0]])
    baseline = np.array([[0.0625, 0.0, 0.5, 0.0], [0.0, 0.0, 0.5, 0.25]])
    assert coverage.count_solved(policy, baseline) == {
        "only_policy": {"value": 1.5, "seeds": [1, 2]},
        "only_baseline": {"value": 1.0, "seeds": [1, 1]},
        "neither": {"value": 0.5, "seeds": [1, 0]},
    }


def problem(num_correct):
    at = {name: {"1": 0.0, "4": 0.0} for name in ("pass", "majority")}
    fields = dict.fromkeys(ProblemResult.__dataclass_fields__, 0.0)
    return ProblemResult(
        **fields | {"id": "p", "num_samples": 16, "num_correct": num_correct, "accuracy_at": at}
    )


def test_pass_at_all_samples_is_whether_any_is_right():
    result = estimates.collect_estimates([problem(0), problem(1), problem(16)])
    assert result["pass/16"].tolist() == [0.0, 1.0, 1.0]
    # One right of 16 is among half of the subsets of 8.
    assert result["pass/8"].tolist() == [0.0, 0.5, 1.0]
    assert result["pass/4"].tolist() == [0.0, 0.0, 0.0], "as `evaluate` wrote it"
