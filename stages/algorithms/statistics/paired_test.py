"""Whether a mean difference over problems is zero."""

import math

import numpy as np
from jaxtyping import Float


def p_value(differences: Float[np.ndarray, " problem"]) -> float:
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
