"""Random problems for the rows of an environment; no two splits share one.

A problem belongs to a split by the hash of its text. A row's problem is drawn, from a stream seeded
by the row's id, until it belongs to the row's split, with which the id begins: `train-17`.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

from stages.environments.environment import Row
from stages.seeding import derive_seed

PartT = TypeVar("PartT")
SPLIT_BY_REMAINDER = ("train", "train", "train", "dev", "test")
"""Split by the hash modulo 5: three of five problems are for training."""
MAX_DRAWS = 10_000


def draw_problem(row: Row, *parts: Sequence[PartT]) -> tuple[PartT, ...]:
    """Problem of a row, the same at every call: an element of each of `parts`.

    The row's id begins with the name of its split and a hyphen.
    """
    split = str(row["id"]).partition("-")[0]
    if split not in SPLIT_BY_REMAINDER:
        raise ValueError(
            f"expected a row whose id begins with its split, such as train-17, found "
            f"'{row['id']}': set `starts: {{train: .., dev: .., test: ..}}` in the preset"
        )
    stream = random.Random(derive_seed(0, "problem", row["id"]))
    for _ in range(MAX_DRAWS):
        problem = tuple(stream.choice(part) for part in parts)
        text = " ".join(map(str, problem))
        if split == SPLIT_BY_REMAINDER[derive_seed(0, "split", text) % len(SPLIT_BY_REMAINDER)]:
            return problem
    raise ValueError(
        f"none of {MAX_DRAWS} problems that were drawn belongs to split {split}: there are too "
        f"few different ones for three splits. Set options of the environment that give more"
    )
