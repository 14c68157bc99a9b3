"""Statistics over the completions of one prompt: a group is the rows with one id.

Groups may have any size, any ids and any order of rows. Every result is given to each row
of the group it belongs to. Rows that are not `counted` receive results but enter none.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def group_sums(
    values: Float[Tensor, " batch"], groups: Int[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """Sum of each row's group."""
    index = _index(groups)
    return values.new_zeros(len(values)).index_add(0, index, values)[index]


def group_counts(
    groups: Int[Tensor, " batch"], *, counted: Bool[Tensor, " batch"]
) -> Int[Tensor, " batch"]:
    """Number of counted rows in each row's group."""
    index = _index(groups)
    counts = torch.zeros_like(index).index_add(0, index, counted.to(index.dtype))
    return counts[index]


def group_means(
    values: Float[Tensor, " batch"],
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """Mean over the counted rows of each row's group; 0 when none counts."""
    sums = group_sums(torch.where(counted, values, 0.0), groups)
    return sums / group_counts(groups, counted=counted).clamp(min=1)


def group_stds(
    values: Float[Tensor, " batch"],
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
    ddof: int,
) -> Float[Tensor, " batch"]:
    """Standard deviation over the counted rows of each row's group.

        sqrt(sum (x - mean)^2 / (n - ddof)),   0 when n <= ddof

    Args:
        values: x, one for each completion.
        groups: the id of each completion's prompt.
        counted: False where a row must not enter the statistics, whatever its value.
        ddof: 0 divides by n, 1 by n - 1.
    """
    centred = values - group_means(values, groups, counted=counted)
    squares = group_sums(torch.where(counted, centred.square(), 0.0), groups)
    divisors = group_counts(groups, counted=counted) - ddof
    return torch.where(divisors > 0, squares / divisors.clamp(min=1), 0.0).sqrt()


def without_signal(
    rewards: Float[Tensor, " batch"],
    groups: Int[Tensor, " batch"],
    *,
    counted: Bool[Tensor, " batch"],
) -> Bool[Tensor, " batch"]:
    """True in groups whose counted rewards are all equal, one or none included.

    The comparison is exact: the mean of equal numbers is not always that number, and a
    rounding error divided by a standard deviation of rounding errors looks like a signal.
    """
    index = _index(groups)
    infinity = torch.full_like(rewards, torch.inf)
    lowest = infinity.scatter_reduce(0, index, torch.where(counted, rewards, torch.inf), "amin")
    highest = (-infinity).scatter_reduce(
        0, index, torch.where(counted, rewards, -torch.inf), "amax"
    )
    # A group without counted rows has lowest inf and highest -inf.
    return (lowest >= highest)[index]


def _index(groups: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
    """The ids as 0, 1, 2, ...: an id itself may be larger than any tensor."""
    # torch's `unique` is not annotated.
    return torch.unique(groups, return_inverse=True)[1]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
