"""Aggregation of an ensemble's reward scores to one score, and the members' disagreement.

Coste et al., "Reward Model Ensembles Help Mitigate Overoptimization" (2024),
https://arxiv.org/abs/2310.02743, section 3. The divisor of the variance is the number of
members, as there, so the variance of a single member is 0.
"""

from jaxtyping import Float
from torch import Tensor

Scores = Float[Tensor, "member batch"]
Rewards = Float[Tensor, " batch"]


def mean(scores: Scores) -> Rewards:
    """Mean of the members' scores: independent errors average out."""
    return scores.mean(0)


def minimum(scores: Scores) -> Rewards:
    """Smallest of the members' scores: worst-case optimisation (WCO)."""
    return scores.amin(0)


def mean_minus_std(scores: Scores, k: float) -> Rewards:
    """mean - k std: a lower confidence bound, in the units of the scores."""
    return scores.mean(0) - k * std(scores)


def mean_minus_variance(scores: Scores, k: float) -> Rewards:
    """mean - k variance: uncertainty-weighted optimisation (UWO).

    In the paper k is 0.5 for best-of-n and 0.1 for PPO; a good k depends on the scores' scale.
    """
    return scores.mean(0) - k * scores.var(0, correction=0)


def std(scores: Scores) -> Rewards:
    """Standard deviation of the members' scores of each completion: their disagreement."""
    return scores.std(0, correction=0)
