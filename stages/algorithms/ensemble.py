"""Scores of several reward models as one, and how far the models disagree.

Coste et al., "Reward Model Ensembles Help Mitigate Overoptimization" (2024),
https://arxiv.org/abs/2310.02743, section 3. Spreads are of the population (divided by the number of
members), as there: one member alone has none.
"""

from jaxtyping import Float
from torch import Tensor

Scores = Float[Tensor, "member batch"]
Rewards = Float[Tensor, " batch"]


def mean(scores: Scores) -> Rewards:
    """The members' mean: their errors average out, a shared one stays."""
    return scores.mean(0)


def minimum(scores: Scores) -> Rewards:
    """The worst case, worst-case optimisation (WCO): good only where every member finds it good."""
    return scores.amin(0)


def mean_minus_std(scores: Scores, k: float) -> Rewards:
    """Mean - k * std: a lower confidence bound, in the rewards' own unit."""
    return scores.mean(0) - k * std(scores)


def mean_minus_variance(scores: Scores, k: float) -> Rewards:
    """Mean - k * variance (UWO, uncertainty-weighted): 0.5 in best of n, 0.1 in PPO.

    Which `k` does depends on the rewards' scale.
    """
    return scores.mean(0) - k * scores.var(0, correction=0)


def std(scores: Scores) -> Rewards:
    """Standard deviation of the members' scores of each completion: their disagreement."""
    return scores.std(0, correction=0)
