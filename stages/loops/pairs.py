"""Preference pairs as groups of a batch: both completions share the prompt and the micro-batch."""

from collections.abc import Sequence

from stages.models.batch import Group
from stages.records.preferences import Preference


def pair_groups(pairs: Sequence[Preference], numbers: Sequence[int]) -> list[Group]:
    """Each pair as one group: completion 2i is the chosen one of pair i, 2i + 1 the rejected."""
    return [
        Group(
            prompt_ids=pairs[i].prompt_ids,
            completions=[pairs[i].chosen_ids, pairs[i].rejected_ids],
            indices=[2 * i, 2 * i + 1],
        )
        for i in numbers
    ]
