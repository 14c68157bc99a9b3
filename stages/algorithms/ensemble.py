"""Scores of several reward models as one, and how far the models disagree.

Coste et al., "Reward Model Ensembles Help Mitigate Overoptimization" (2024),
https://arxiv.org/abs/2310.02743, section 3. Spreads are of the population (divided by the number of
members), as there: one member alone has none.
"""

from jaxtyping import Float
from torch import Tensor


def mean(scores: Float[Tensor, "member batch"]) -> Float[Tensor, " batch"]:
    """The members' mean: their errors average out, a shared one stays."""
    return scores.mean(0)


def minimum(scores: Float[Tensor, "member batch"]) -> Float[Tensor, " batch"]:
    """The worst case, worst-case optimisation (WCO): good only where every member finds it good."""
    return scores.amin(0)


def mean_minus_std(
    scores: Float[Tensor, "member batch"], *, weight: float
) -> Float[Tensor, " batch"]:
    """Mean - weight * std: a lower confidence bound, in the rewards' own unit."""
    return scores.mean(0) - weight * std(scores)


def mean_minus_variance(
    scores: Float[Tensor, "member batch"], *, weight: float
) -> Float[Tensor, " batch"]:
    """Mean - weight * variance (UWO, uncertainty-weighted): 0.5 in best of n, 0.1 in PPO."""
    return scores.mean(0) - weight * scores.var(0, correction=0)


def std(scores: Float[Tensor, "member batch"]) -> Float[Tensor, " batch"]:
    """How far the members disagree on each completion: their standard deviation."""
    return scores.std(0, correction=0)
