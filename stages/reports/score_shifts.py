"""How scorers score right and wrong completions of each policy.

A reward model's scores are comparable within a problem only. So each score is taken minus the mean
score of the baseline's samples of the same problem: how much better than the baseline's typical
answer the scorer finds this one. Such shifts can be pooled and compared between policies.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from stages.reports.policy_samples import PolicySamples
from stages.reports.problem_interval import QualityConfig, over_problems

Scores = Mapping[str, Float[np.ndarray, "problem sample"]]
"""For each policy that a scorer has scored, its samples' scores; the baseline first."""
Metrics = dict[str, Any]


def shifts(scores: Scores) -> dict[str, Float[np.ndarray, "problem sample"]]:
    """Each policy's scores minus the mean score of the first one's samples of the problem."""
    reference = next(iter(scores.values())).mean(axis=1, keepdims=True)
    return {name: of_policy - reference for name, of_policy in scores.items()}


def measure(
    scores: Scores, policies: Mapping[str, PolicySamples], config: QualityConfig, *, seed: int
) -> Metrics:
    """For each policy the mean shift, that of right and of wrong completions, with intervals.

    Means over problems; of right (wrong) completions over the problems that have any, None where
    none has. `exploited`: the share of wrong completions which score above the baseline's mean
    right completion of the same problem, over the problems where the baseline has a right one
    and the policy a wrong one.
    """
    (baseline, reference), *_ = scores.items()
    right = policies[baseline].right
    with_right = right.any(axis=1, keepdims=True)
    typical = np.where(right, reference, 0.0).sum(axis=1) / np.maximum(1, right.sum(axis=1))
    found = {}
    for name, shift in shifts(scores).items():
        verdicts = policies[name].right
        places = np.broadcast_to(np.arange(len(shift))[:, None], shift.shape)
        wrong = ~verdicts & with_right
        above = (scores[name] > typical[:, None]).astype(np.float64)
        found[name] = {
            kind: over_problems(shift[mask], places[mask], config, seed, is_rate=False)
            for kind, mask in {
                "all": np.ones_like(verdicts),
                "right": verdicts,
                "wrong": ~verdicts,
            }.items()
        } | {"exploited": over_problems(above[wrong], places[wrong], config, seed)}
    return found
