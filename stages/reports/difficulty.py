"""Accuracy by difficulty, without the regression to the mean that measuring it twice would add."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from stages.reports.policy_samples import PolicySamples
from stages.reports.problem_interval import Interval, QualityConfig, over_problems
from stages.reports.rounding import rounded

NUM_GROUPS = 5
Metrics = dict[str, Any]


def assign(right: Bool[np.ndarray, "problem sample"], *, seed: int) -> Int[np.ndarray, " problem"]:
    """The group of each problem, 0 the hardest, by the pass rate of one half of its samples.

    The half is that of the even-numbered samples; `measured` gives the other, which was drawn
    independently. A problem that was lucky in the first half is as likely as ever to be right in
    the second, so the groups differ in difficulty alone. With the same samples on both sides the
    hardest group would look harder than it is, and any other policy would seem to gain there.

    Groups are of equal size (to one problem); problems of equal pass rate are placed at random,
    by `seed`.

    Raises:
        ValueError: there is only one sample of a problem.
    """
    num_problems, num_samples = right.shape
    if num_samples < 2:
        raise ValueError(
            "Expected at least 2 samples of each problem, one to tell its difficulty and one to "
            "measure, found 1: raise sample_candidates.test.num_samples."
        )
    rates = right[:, ::2].mean(axis=1)
    ties = np.random.default_rng(seed).random(num_problems)
    groups = np.empty(num_problems, dtype=np.int64)
    num_groups = min(NUM_GROUPS, num_problems)
    groups[np.lexsort((ties, rates))] = np.arange(num_problems) * num_groups // num_problems
    return groups


def measured(right: Bool[np.ndarray, "problem sample"]) -> Bool[np.ndarray, "problem half"]:
    """The samples that `assign` did not look at."""
    return right[:, 1::2]


def measure(
    policies: Mapping[str, PolicySamples], config: QualityConfig, *, seed: int
) -> list[Metrics]:
    """For each group, the hardest first, each policy's accuracy and its gain over the baseline.

    Args:
        policies: the baseline, whose samples tell the difficulty, first.
        config: how intervals are made.
        seed: of ties and of resamples.

    Returns:
        `{group, problems, assigned, policies: {name: {accuracy, gain}}}` of each group;
        `assigned` is the mean pass rate that put the problems there (biased, for comparison), the
        gain is paired by problem, and None for the baseline.
    """
    (baseline, reference), *_ = policies.items()
    groups = assign(reference.right, seed=seed)
    before = measured(reference.right).mean(axis=1)
    found = []
    for group in np.unique(groups):
        inside = groups == group
        places = np.arange(inside.sum())
        of_policies: dict[str, dict[str, Interval | None]] = {}
        for name, policy in policies.items():
            after = before if name == baseline else policy.right.mean(axis=1)
            gain = None
            if name != baseline:
                gains = (after - before)[inside]
                gain = over_problems(gains, places, config, seed, is_rate=False)
            accuracy = over_problems(after[inside], places, config, seed)
            of_policies[name] = {"accuracy": accuracy, "gain": gain}
        (assigned,) = rounded([float(reference.right[inside, ::2].mean())])
        found.append(
            {
                "group": int(group) + 1,
                "problems": int(inside.sum()),
                "assigned": assigned,
                "policies": of_policies,
            }
        )
    return found
