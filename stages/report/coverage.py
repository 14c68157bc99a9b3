"""Whether a policy solves problems that the baseline never solves, or only solves them more often.

Estimated from all N samples of each problem. pass@k with k = N says whether any of them is right.
It is unbiased, as for every k, but has the largest variance: a single 0 or 1 for each problem and
seed. "Never right in N samples" is no proof that a policy cannot solve a problem: if a sample is
right with probability 1/N, all N are wrong with probability (1 - 1/N)^N, 36 % for N = 16.
"""

from statistics import fmean
from typing import Any

from stages.records.metrics import round_metric
from stages.report.estimates import MEAN, Results, Table


def count_solved(policy: Table, baseline: Table) -> dict[str, Any]:
    """Numbers of problems that only the policy, only the baseline, or neither of them solves.

    Solved means right in any sample. `policy` and `baseline` are shares of right samples, [seed,
    problem]. Of each number: the mean over seeds as `value`, and that of each seed.
    """
    solved, before = policy > 0, baseline > 0
    counts = {
        "only_policy": (solved & ~before).sum(axis=1),
        "only_baseline": (before & ~solved).sum(axis=1),
        "neither": (~before & ~solved).sum(axis=1),
    }
    return {
        name: {"value": round_metric(fmean(of_seeds)), "seeds": of_seeds.tolist()}
        for name, of_seeds in counts.items()
    }


def compare_coverage(results: Results) -> dict[str, Any]:
    """Policy -> `count_solved` against the baseline."""
    baseline, *trained = results.tables
    means = {name: table[MEAN] for name, table in results.tables.items()}
    return {name: count_solved(means[name], means[baseline]) for name in trained}
