"""Micro-batches and packed rows, from lengths only."""

from collections.abc import Sequence


def token_budget_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices of `lengths` in batches of at most `max_tokens`: rows times longest row.

    Longest first, so that rows of a batch are of similar length and little is padding.
    A row longer than the budget is a batch by itself. The split never changes a loss: every loss
    here is normalised by counts over the whole optimizer step.
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


def first_fit_decreasing(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Indices of `lengths` in bins whose sums are at most `capacity`.

    Longest first (equal ones in their order), each into the first bin with room for it: at most
    11/9 of the optimal number of bins plus 2/3 (Dosa, "The tight bound of first fit decreasing
    bin-packing algorithm" (2007)). An item longer than the capacity is a bin by itself.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    bins: list[list[int]] = []
    room: list[int] = []
    first = 0
    previous = None
    for index in order:
        # A bin without room for an item has none for the next of the same length.
        if lengths[index] != previous:
            first, previous = 0, lengths[index]
        while first < len(bins) and room[first] < lengths[index]:
            first += 1
        if first == len(bins):
            bins.append([])
            room.append(capacity)
        bins[first].append(index)
        room[first] -= lengths[index]
    return bins
