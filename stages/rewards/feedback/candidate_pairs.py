"""Pairs of completions for a judge, drawn without looking at which one is right."""

import itertools
import random
from collections.abc import Sequence

from stages.records.pools import Completion


def draw(
    pool: Sequence[Completion], *, max_pairs: int, seed: int
) -> list[tuple[Completion, Completion]]:
    """At most `max_pairs` pairs of one problem's pool, in random order and orientation.

    Only of completions that ended by themselves (there is no fair reading of half an answer),
    and of different texts: of equal ones a judge can tell nothing but their position.
    """
    finished = [row for row in pool if row.finish_reason == "stop"]
    different = list({row.completion: row for row in reversed(finished)}.values())[::-1]
    stream = random.Random(seed)
    pairs = list(itertools.combinations(different, 2))
    chosen = stream.sample(pairs, min(max_pairs, len(pairs)))
    return [(a, b) if stream.random() < 0.5 else (b, a) for a, b in chosen]
