"""Whether two methods differ on the problems that only one of them gets right."""

import math


def p_value(num_only_first: int, num_only_second: int) -> float:
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
