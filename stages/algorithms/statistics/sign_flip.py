"""Whether paired differences lean to one side, where a bootstrap is too sure of few of them."""

import numpy as np
from jaxtyping import Float


def p_value(differences: Float[np.ndarray, " pair"], *, num_draws: int, seed: int) -> float:
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
