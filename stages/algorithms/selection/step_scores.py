"""Score of a solution from the scores of its steps, and the selection of a beam in a search."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from statistics import fmean
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

Kind = Literal["last", "min", "product", "mean"]
KINDS: dict[Kind, Callable[[Sequence[float]], float]] = {
    # For scores learned from completions, which already foresee the end: Zhang et al., "The Lessons
    # of Developing Process Reward Models in Mathematical Reasoning" (2025),
    # https://arxiv.org/abs/2501.07301
    "last": itemgetter(-1),
    # A solution is as good as its worst step: Wang et al., "Math-Shepherd" (2024), section 3.4; for
    # scores learned from people, who judge each step by itself (Zhang et al. 2025).
    "min": min,
    # P(every step is right), were steps independent: Lightman et al., "Let's Verify Step by Step"
    # (2023), appendix F, who note that it favours solutions of few steps.
    "product": math.prod,
    # One bad step among many good ones costs little.
    "mean": fmean,
}
"""Aggregation of step scores, by its name in params.yaml."""


def select_beam(
    scores: Float[np.ndarray, " candidate"], trees: Int[np.ndarray, " candidate"], *, keep: int
) -> list[int]:
    """Numbers of the candidates that stay in the beam, tree by tree, best first.

    Each tree keeps the `keep` candidates with the highest scores; of equal scores, the first.

    One tree is the beam search of Snell et al. 2024 (https://arxiv.org/abs/2408.03314, section
    5.2), with N = `keep` times the children of each; many trees of `keep` = 1 are the diverse
    verifier tree search of Beeching, Tunstall and Rush ("Scaling test-time compute", 2024,
    huggingface/search-and-learn), in which a solution competes with its siblings alone. Two
    candidates of the same text take two places (theirs has the option `filter_duplicates`).

    With scores (.2, .9, .4, .7), all of one tree, and `keep` = 2: the second and the fourth.
    """
    assert keep >= 1, keep
    assert np.isfinite(scores).all(), "scores must be finite"
    selected: list[int] = []
    places: Counter[int] = Counter()
    for candidate in np.lexsort((-scores, trees)).tolist():
        tree = int(trees[candidate])
        if places[tree] < keep:
            places[tree] += 1
            selected.append(candidate)
    return selected
