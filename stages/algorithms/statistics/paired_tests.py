"""Whether two methods differ on the same problems, and how small a difference could be seen."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from jaxtyping import Float


def z_test(differences: Float[np.ndarray, " problem"]) -> float:
    """Two-sided test that the true mean of paired differences is 0.

        z = mean(differences) / (sd(differences) / sqrt(P)),   p = 2 (1 - Phi(|z|))

    the normal approximation for P problems, as in Miller 2024 (https://arxiv.org/abs/2411.00640,
    section 4.2); sd with P - 1. For hundreds of problems; for few of them take a t-test.

    With (1, 1, 0, 0), mean 0.5, sd 0.577, z 1.732: p = 0.083. Differences that are all the same
    are no spread: p is 0, or 1 where they are all 0.

    Args:
        differences: one method minus the other, of each problem; at least two.
    """
    assert len(differences) > 1, "the spread of a single problem is not known"
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    if deviation == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    z = abs(mean) / (deviation / math.sqrt(len(differences)))
    # erfc, for 1 - Phi(z) is 0 for every z above 8.
    return math.erfc(z / math.sqrt(2.0))


def sign_flip_test(differences: Float[np.ndarray, " pair"], *, num_draws: int, seed: int) -> float:
    """One-sided p of the mean difference being above zero, by random signs.

        p = (1 + #{draws: mean(s_i d_i) >= mean(d_i)}) / (1 + draws),   s_i = ±1, equally likely

    Under the hypothesis a difference is as likely as its negative. The one added to both counts
    makes the test valid at any number of draws (Phipson and Smyth 2010,
    https://doi.org/10.2202/1544-6115.1585). Fisher's randomisation test of pairs. Of four
    differences of +1 and any number of 0: about 1/16, where a percentile bootstrap of many pairs
    has an interval above zero.

    Args:
        differences: one a pair.
        num_draws: the smallest p is 1 / (1 + draws).
        seed: the draws are a function of it and of the number of pairs alone.
    """
    assert len(differences) > 0, "no pairs"
    stream = np.random.default_rng(seed)
    observed = float(differences.sum())
    # Rounding must not tell apart what is equal: a draw of all +1 is the observation itself.
    slack = 1e-9 * (1.0 + float(np.abs(differences).sum()))
    signs = stream.integers(0, 2, (num_draws, len(differences)), dtype=np.int8) * 2 - 1
    reached = int((signs @ differences >= observed - slack).sum())
    return (1 + reached) / (1 + num_draws)


def mcnemar_test(num_only_first: int, num_only_second: int) -> float:
    """Two-sided exact test that both discordant outcomes are equally likely.

    Of b + c problems that exactly one method gets right, b by the first: under the hypothesis
    b is binomial(b + c, 1/2), so

        p = min(1, 2 Σ_{i=0..min(b,c)} C(b + c, i) / 2^(b + c))

    Problems that both or neither get right say nothing. McNemar 1947
    (https://doi.org/10.1007/BF02295996), in the exact form. For plain right or wrong, as of greedy
    decoding; for accuracies between 0 and 1 take a bootstrap of the differences.

    With b = 1, c = 5: 2 (1 + 6) / 64 = 0.21875. Without discordant problems: 1.

    Args:
        num_only_first: b, problems that only the first method gets right.
        num_only_second: c.
    """
    assert num_only_first >= 0 and num_only_second >= 0  # noqa: PT018
    discordant = num_only_first + num_only_second
    fewer = min(num_only_first, num_only_second)
    below = sum(math.comb(discordant, i) for i in range(fewer + 1))
    # Whole numbers until the one division, which must not overflow a float.
    return min(1.0, 2 * below / (1 << discordant))


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, in the order given.

    With the m p-values sorted, p_(1) <= ... <= p_(m),

        adjusted_(i) = max_{j <= i} min(1, (m - j + 1) p_(j))

    Calling significant what is at most alpha after adjustment errs anywhere in the table with
    probability at most alpha, whatever the dependence between the comparisons; nowhere weaker
    than Bonferroni's m p. "A Simple Sequentially Rejective Multiple Test Procedure" (Holm 1979).

    With (0.01, 0.04, 0.03): (0.03, 0.06, 0.06).
    """
    assert all(0.0 <= p <= 1.0 for p in p_values), p_values
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = least
    return adjusted


def minimum_detectable(
    differences: Float[np.ndarray, " problem"], *, significance: float, power: float
) -> float:
    """The smallest true mean difference found significant with probability `power`.

        MDE = (z_{1 - significance/2} + z_{power}) * sd(differences) / sqrt(P)

    the normal approximation for paired differences of P problems (Miller 2024,
    https://arxiv.org/abs/2411.00640, section 5; Cohen 1988, chapter 2).

    With sd 0.4 of 100 problems, significance 0.05, power 0.8: (1.960 + 0.842) * 0.04 = 0.112.

    Args:
        differences: one method minus the other, of each problem; at least two.
        significance: of the two-sided test, for example 0.05.
        power: for example 0.8.
    """
    return _quantiles(significance, power) * _deviation(differences) / math.sqrt(len(differences))


def problems_needed(
    differences: Float[np.ndarray, " problem"], effect: float, *, significance: float, power: float
) -> int:
    """How many problems like these it takes to detect a true mean difference of `effect`.

        P = ((z_{1 - significance/2} + z_{power}) * sd(differences) / effect)², rounded up

    The inverse of `minimum_detectable`. `effect` is not 0: no number of problems shows that two
    methods are the same.
    """
    assert effect != 0.0, "an effect of 0 cannot be detected"
    root = _quantiles(significance, power) * _deviation(differences) / abs(effect)
    return math.ceil(root**2)


def _quantiles(significance: float, power: float) -> float:
    assert 0.0 < significance < 1.0, significance
    assert 0.0 < power < 1.0, power
    normal = NormalDist()
    return normal.inv_cdf(1.0 - significance / 2.0) + normal.inv_cdf(power)


def _deviation(differences: Float[np.ndarray, " problem"]) -> float:
    assert len(differences) > 1, "the spread of a single problem is not known"
    return float(differences.std(ddof=1))
