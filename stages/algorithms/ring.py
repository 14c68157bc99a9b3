"""Comparisons of the members of each group around a ring: two for each, whatever the group's size.

All pairs of n would be n (n - 1) / 2 comparisons. Around a ring there are n, and each member meets
the one before and the one after it. No source: it is ours.
"""

from collections.abc import Sequence


def pairs(groups: Sequence[int]) -> list[tuple[int, int]]:
    """Each member of a group with the next one of it, and the last with the first.

    Two members are one pair. Who is next is a matter of the order within the group alone.

    Args:
        groups: of each member, the number of its group.

    Raises:
        ValueError: a group of one, naming its member.
    """
    members: dict[int, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    found: list[tuple[int, int]] = []
    for own in members.values():
        if len(own) == 1:
            raise ValueError(f"expected groups of at least two, found {own[0]} alone")
        following = own[1:] if len(own) == 2 else [*own[1:], own[0]]
        found += zip(own, following, strict=False)
    return found


def means(
    number: int, compared: Sequence[tuple[int, int]], values: Sequence[tuple[float, float]]
) -> list[float]:
    """Of each member, the mean of what its comparisons say of it.

    Args:
        number: of members.
        compared: their pairs, each member in at least one.
        values: of each pair, what it says of its first and of its second member.
    """
    said: list[list[float]] = [[] for _ in range(number)]
    for pair, both in zip(compared, values, strict=True):
        for index, value in zip(pair, both, strict=True):
            said[index].append(value)
    return [sum(own) / len(own) for own in said]
