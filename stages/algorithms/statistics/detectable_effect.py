"""How small a difference an experiment could have seen, and what size it takes to see one."""

import math
from statistics import NormalDist

import numpy as np
from jaxtyping import Float


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
