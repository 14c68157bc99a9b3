"""Whether a policy solves problems that the baseline never solves, or only solves them more often.

From all N samples of each problem. pass@k with k = N is whether any of them is right: without bias,
as for every k, but a single 0 or 1 for each problem and seed, so that it varies most. "Never in N
samples" is no proof that a policy cannot: a problem solved once in N tries is missed by
(1 - 1/N)^N, 36 % of such pools for N = 16.
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
