"""What a reinforcement-learning run could learn from its groups, step by step."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stages.algorithms.repetition import repeated_share
from stages.records.pools import Rollout

NGRAM = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupPoint:
    """Of one step; a group is the completions of one problem in it."""

    step: int
    num_groups: int
    within_variance: float | None
    """Mean over groups of the variance of a group's rewards, with ddof 1; None where groups have
    one completion. Advantages are made of these differences: where it is zero, a group teaches
    nothing."""
    flat_share: float | None
    """Share of the groups of two or more whose rewards are all the same."""
    all_right: float
    """Share of the groups in which every completion is right: too easy to teach."""
    all_wrong: float
    """Share in which none is."""
    repetition: float
    """Mean share of 4-grams of tokens that a completion has had before."""


def points(rollouts: Iterable[Rollout]) -> list[GroupPoint]:
    """One point a step, in order."""
    rows = sorted(rollouts, key=lambda row: (row.step, row.id, row.index))
    found = []
    for step, of_step in itertools.groupby(rows, key=lambda row: row.step):
        groups = [list(group) for _, group in itertools.groupby(of_step, key=lambda row: row.id)]
        several = [
            np.array([row.reward for row in group], dtype=np.float64)
            for group in groups
            if len(group) > 1
        ]
        repeated = [repeated_share(row.completion_ids, NGRAM) for g in groups for row in g]
        found.append(
            GroupPoint(
                step=step,
                num_groups=len(groups),
                within_variance=float(np.mean([group.var(ddof=1) for group in several]))
                if several
                else None,
                flat_share=float(np.mean([np.ptp(group) == 0.0 for group in several]))
                if several
                else None,
                all_right=_share(all(row.correct for row in group) for group in groups),
                all_wrong=_share(not any(row.correct for row in group) for group in groups),
                repetition=float(np.mean(repeated)),
            )
        )
    return found


def _share(flags: Iterable[bool]) -> float:
    return float(np.mean(list(flags)))
