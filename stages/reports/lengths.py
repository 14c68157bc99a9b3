"""How long completions are, and how length and being right go together."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from stages.algorithms.statistics.score_quality import auc
from stages.reports.policy_samples import PolicySamples
from stages.reports.problem_interval import QualityConfig, over_problems
from stages.reports.rounding import rounded

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
NUM_BUCKETS = 5
Metrics = dict[str, Any]


def measure(policies: Mapping[str, PolicySamples], config: QualityConfig, *, seed: int) -> Metrics:
    """The content of the section.

    Returns:
        `buckets`: (shortest, longest) length in tokens of each; about a fifth of all policies'
        completions are in each. `policies`: for each its `quantiles` of lengths, `mean_tokens`
        and `cut` (share cut at the limit) with intervals over problems; `right_is_longer`, how
        often a right completion is longer than a wrong one of the same problem, ties half (None:
        no problem has both); and for each bucket its `accuracy` (None: no completion) and the
        `share` of the policy's completions in it.
    """
    edges = bucket_edges(np.concatenate([policy.tokens.ravel() for policy in policies.values()]))
    return {
        "buckets": [[int(low), int(high) - 1] for low, high in itertools.pairwise(edges)],
        "policies": {
            name: of_policy(policy, edges, config, seed=seed) for name, policy in policies.items()
        },
    }


def bucket_edges(tokens: Int[np.ndarray, " completion"]) -> list[int]:
    """Where buckets of lengths begin, and one past the longest; about equally many in each.

    Completions of one length are never parted, so there can be fewer than `NUM_BUCKETS`.
    """
    inner = np.quantile(tokens, np.arange(1, NUM_BUCKETS) / NUM_BUCKETS, method="higher")
    edges = {int(tokens.min()), int(tokens.max()) + 1, *(int(edge) for edge in inner)}
    return sorted(edges)


def of_policy(
    policy: PolicySamples, edges: list[int], config: QualityConfig, *, seed: int
) -> Metrics:
    """One policy's numbers."""
    num_problems, num_samples = policy.tokens.shape
    places = np.repeat(np.arange(num_problems), num_samples)
    tokens, right = policy.tokens.ravel(), policy.right.ravel().astype(np.float64)
    orders = [
        auc(lengths.astype(np.float64), verdicts)
        for lengths, verdicts in zip(policy.tokens, policy.right, strict=True)
    ]
    both = np.array([order for order in orders if order is not None], dtype=np.float64)
    buckets = []
    for low, high in itertools.pairwise(edges):
        inside = (tokens >= low) & (tokens < high)
        (share,) = rounded([float(inside.mean())])
        accuracy = over_problems(right[inside], places[inside], config, seed)
        buckets.append({"share": share, "accuracy": accuracy})
    cut = policy.cut.ravel().astype(np.float64)
    lengths = tokens.astype(np.float64)
    return {
        "quantiles": rounded([float(one) for one in np.quantile(tokens, QUANTILES)]),
        "mean_tokens": over_problems(lengths, places, config, seed, is_rate=False),
        "cut": over_problems(cut, places, config, seed),
        "right_is_longer": over_problems(both, np.arange(len(both)), config, seed),
        "buckets": buckets,
    }
