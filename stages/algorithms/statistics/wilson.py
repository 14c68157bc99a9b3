"""Confidence interval of a plain rate."""

import math
from statistics import NormalDist


def interval(num_successes: int, num_trials: int, *, confidence: float) -> tuple[float, float]:
    """Wilson's score interval of a binomial proportion.

        (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n)

    Right where the bootstrap and p ± z sqrt(p(1-p)/n) fail: few trials, rates near 0 or 1.
    "Probable Inference, the Law of Succession, and Statistical Inference" (Wilson 1927);
    its coverage: Brown, Cai and DasGupta 2001 (https://doi.org/10.1214/ss/1009213286).

    With 0 of 10 at 95 %: from 0 to z²/(10 + z²) = 3.8415/13.8415 = 0.2775.

    Args:
        num_successes: from 0 to `num_trials`.
        num_trials: independent trials, at least 1.
        confidence: for example 0.95.

    Returns:
        The lower and the upper bound, within [0, 1].
    """
    assert 0 <= num_successes <= num_trials, (num_successes, num_trials)
    assert num_trials > 0, "no trials"
    z_squared = NormalDist().inv_cdf((1.0 + confidence) / 2.0) ** 2
    rate = num_successes / num_trials
    centre = rate + z_squared / (2 * num_trials)
    spread = math.sqrt(
        z_squared * (rate * (1 - rate) / num_trials + z_squared / (4 * num_trials**2))
    )
    scale = 1 + z_squared / num_trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
