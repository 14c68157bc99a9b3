"""Micro-batches filled by token budget. Knows lengths only, not what they are lengths of."""

from collections.abc import Sequence


def token_budget_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices of `lengths` in batches of at most `max_tokens`: rows times longest row.

    Longest first, so that rows of a batch are of similar length and little is padding.
    A row longer than the budget gets a batch of its own. The split never changes a
    loss: every loss here is normalised by counts over the whole optimizer step.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    batches: list[list[int]] = []
    for index in order:
        # The first row of a batch is its longest.
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= max_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
