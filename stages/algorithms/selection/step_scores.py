"""One score of a solution from the scores of its steps."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

Kind = Literal["last", "min", "product", "mean"]


def last(scores: Sequence[float]) -> float:
    """The last step's: P(right so far) once all has been said.

    For scores learned from completions, which already say what the end will be. Zhang et al.,
    "The Lessons of Developing Process Reward Models in Mathematical Reasoning" (2025),
    section 3.4, https://arxiv.org/abs/2501.07301
    """
    return scores[-1]


def lowest(scores: Sequence[float]) -> float:
    """The smallest: a solution is as good as its worst step.

    Wang et al., "Math-Shepherd" (2024), section 3.5; for scores learned from people, who judge
    each step by itself (Zhang et al. 2025).
    """
    return min(scores)


def product(scores: Sequence[float]) -> float:
    """The product: P(every step is right), were steps independent.

    Lightman et al., "Let's Verify Step by Step" (2023), appendix F, who note that it favours
    solutions of few steps.
    """
    return math.prod(scores)


def mean(scores: Sequence[float]) -> float:
    """The mean: one bad step among many good ones costs little."""
    return math.fsum(scores) / len(scores)


KINDS: dict[Kind, Callable[[Sequence[float]], float]] = {
    "last": last,
    "min": lowest,
    "product": product,
    "mean": mean,
}
"""Their names in params.yaml and in choices."""
