"""Reward as a function of the distance from the start policy: two forms, their fits and peaks.

Gao, Schulman and Hilton, "Scaling Laws for Reward Model Overoptimization" (2023),
https://arxiv.org/abs/2210.10760: with d = sqrt(KL(policy || start)) and rewards relative to the
start, so that R(0) = 0,

    quadratic (best-of-n):                 R(d) = d (alpha - beta d)
    logarithmic (reinforcement learning):  R(d) = d (alpha - beta log d)

alpha is what optimisation gains at first, beta how fast it stops to pay. Both are linear in alpha
and beta. The second has an infinite slope at 0, so points closer than some distance are left out.

Whether a measured curve falls after its best point, without a form: `change_after_best`.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float

Form = Literal["quadratic", "logarithmic"]
Coefficients = Float[np.ndarray, "*resample 2"]
Points = Float[np.ndarray, "*resample point"]
Peaks = Float[np.ndarray, "*resample"]


def reward_curve(coefficients: Coefficients, distance: Points, form: Form) -> Points:
    """R(d) of each pair (alpha, beta); 0 at d = 0."""
    return (_columns(distance, form) * coefficients[..., None, :]).sum(-1)


def fit_curve(
    distance: Points, reward: Points, form: Form, *, min_distance: float = 0.0
) -> Coefficients:
    """(alpha, beta) by linear least squares, every point of the same weight.

    Only points farther away than `min_distance` are fitted; the start never is, for both forms go
    through it. NaN where fewer than two different distances are left: they fix no curve.
    """
    used = distance > min_distance
    columns = np.where(used[..., None], _columns(distance, form), 0.0)
    target = np.where(used, reward, 0.0)
    coefficients = (np.linalg.pinv(columns) @ target[..., None])[..., 0]
    determined = np.linalg.matrix_rank(columns) == 2
    return np.where(determined[..., None], coefficients, np.nan)


def peak_distance(coefficients: Coefficients, form: Form) -> Peaks:
    """d* at which R is largest.

        quadratic: alpha / (2 beta), and 0 where alpha <= 0: every step away loses
        logarithmic: exp(alpha / beta - 1)

    Infinite where beta <= 0: the curve does not turn down, so it has no peak. NaN of NaN.
    """
    alpha, beta = coefficients[..., 0], coefficients[..., 1]
    turns = beta > 0.0
    with np.errstate(over="ignore", divide="ignore"):
        ratio = alpha / np.where(turns, beta, 1.0)
        peak = np.maximum(ratio / 2.0, 0.0) if form == "quadratic" else np.exp(ratio - 1.0)
    return np.where(np.isnan(beta), np.nan, np.where(turns, peak, np.inf))


def peak_reward(coefficients: Coefficients, form: Form) -> Peaks:
    """R(d*): alpha^2 / (4 beta), or beta d*. Infinite where there is no peak.

    A curve that falls from the start (quadratic, alpha <= 0) has its peak there, of height 0.
    """
    alpha, beta = coefficients[..., 0], coefficients[..., 1]
    distance = peak_distance(coefficients, form)
    slope = beta if form == "logarithmic" else alpha / 2.0
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(distance), np.inf, slope * distance)


def _columns(distance: Points, form: Form) -> Float[np.ndarray, "*resample point 2"]:
    """Regressors of alpha and beta."""
    assert (distance >= 0.0).all(), "distances are not negative"
    if form == "quadratic":
        return np.stack([distance, -(distance**2)], axis=-1)
    logarithm = np.log(np.where(distance > 0.0, distance, 1.0))
    return np.stack([distance, -distance * logarithm], axis=-1)


def change_after_best(
    values: Float[np.ndarray, "problem point"], *more_values: Float[np.ndarray, "problem point"]
) -> list[Float[np.ndarray, " problem"]]:
    """Change of each problem from a curve's best point to its last.

    The best point of a noisy curve is partly luck, so that on the same problems the last one
    would look worse even where the curve is level. Hence the best point is chosen on one half of
    the problems (the even rows) and the change is taken on the other (the odd rows), and the
    other way round: the mean is then unbiased for the change after points so chosen. Of points
    that tie the last is taken.

    The best point is chosen by `values`, and what follows are the changes of these, then of each of
    `more_values`, from that point to the last.
    """
    num_problems, num_points = values.shape
    assert num_problems >= 2, "no halves of a single problem"
    rows = np.arange(num_problems, dtype=np.int64)
    best = np.empty(num_problems, dtype=np.int64)
    for half in (0, 1):
        means = values[1 - half :: 2].mean(axis=0)
        best[half::2] = num_points - 1 - int(means[::-1].argmax())
    return [array[:, -1] - array[rows, best] for array in (values, *more_values)]
