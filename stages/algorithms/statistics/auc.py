"""How well scores tell right completions from wrong ones of the same problem."""

import numpy as np
from jaxtyping import Bool, Float


def auc(
    scores: Float[np.ndarray, " sample"], is_right: Bool[np.ndarray, " sample"]
) -> float | None:
    """Probability that a right completion is scored above a wrong one, a tie counting half.

        AUC = mean over (right i, wrong j) of  1[s_i > s_j] + 1/2 1[s_i = s_j]

    Of one problem only; average it over problems, never pool their scores. A reward model's
    scores are comparable within a problem, and best-of-n and a group's advantages compare
    nothing else. A pooled AUC also pays for telling easy problems, whose completions are mostly
    right, from hard ones: a score that is one number for each problem, and so of no use for
    choosing among its completions, can have a pooled AUC near 1, and has exactly 1/2 here.

    The statistic of Mann and Whitney 1947; as an area, Hanley and McNeil 1982.

    Returns:
        The probability, or None where the problem has no right or no wrong completion.
    """
    right, wrong = scores[is_right], scores[~is_right]
    if not len(right) or not len(wrong):
        return None
    assert np.isfinite(scores).all(), "scores must be finite"
    ordered = np.sort(wrong)
    below = np.searchsorted(ordered, right, side="left")
    up_to = np.searchsorted(ordered, right, side="right")
    return float((below + up_to).sum() / (2 * len(right) * len(wrong)))
