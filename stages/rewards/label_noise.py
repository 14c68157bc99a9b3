"""Labels made wrong on purpose, to measure how much noise a reward model bears.

Coste et al., "Reward Model Ensembles Help Mitigate Overoptimization" (2024),
https://arxiv.org/abs/2310.02743, train on 25 % flipped labels, about as many as people disagree on.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from stages.records.preferences import Preference


def flip(pairs: Sequence[Preference], percent: int, seed: int) -> list[Preference]:
    """The pairs in their order, `percent` of 100 with the label p turned into 1 - p.

    An exact number, halves rounded up. The pairs flipped are the first of one order drawn from
    `seed`, so those of 10 per cent are among those of 25: a curve over noise adds, never redraws.

    Raises:
        ValueError: `percent` is not one.
    """
    if not 0 <= percent <= 100:
        raise ValueError(
            f"expected a whole per cent of labels to flip, 0 to 100, found {percent}: change the "
            f"word `flip` of the plan's entry"
        )
    order = np.random.default_rng(seed).permutation(len(pairs))
    wrong = set(order[: (len(pairs) * percent + 50) // 100].tolist())
    return [
        dataclasses.replace(pair, probability=1 - pair.probability) if number in wrong else pair
        for number, pair in enumerate(pairs)
    ]
