"""A component's values in units of its own spread, before they are weighted and added."""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.group_advantages import group_zscore
from stages.params import Params


class Plain(Params):
    """As they are."""

    kind: Literal["none"]

    def __call__(
        self,
        values: Float[Tensor, " batch"],
        groups: Sequence[int],  # noqa: ARG002
    ) -> Float[Tensor, " batch"]:
        """The values."""
        return values


class OverBatch(Params):
    """(value - mean) / (std + eps) over all completions that are judged together."""

    kind: Literal["batch"]
    ddof: int = Field(ge=0, le=1)
    """n - ddof divides the variance."""
    eps: float = Field(gt=0)
    """Added to the standard deviation."""

    def __call__(
        self, values: Float[Tensor, " batch"], groups: Sequence[int]
    ) -> Float[Tensor, " batch"]:
        """See `group_zscore`: the whole batch is one group."""
        return zscores(values, [0] * len(groups), ddof=self.ddof, eps=self.eps)


class OverGroup(Params):
    """(value - mean) / (std + eps) over the completions of its prompt."""

    kind: Literal["group"]
    ddof: int = Field(ge=0, le=1)
    """n - ddof divides the variance."""
    eps: float = Field(gt=0)
    """Added to the standard deviation."""

    def __call__(
        self, values: Float[Tensor, " batch"], groups: Sequence[int]
    ) -> Float[Tensor, " batch"]:
        """See `group_zscore`."""
        return zscores(values, groups, ddof=self.ddof, eps=self.eps)


def zscores(
    values: Float[Tensor, " batch"], groups: Sequence[int], *, ddof: int, eps: float
) -> Float[Tensor, " batch"]:
    """Standard deviations above the mean; exactly 0 where all values of a group are equal."""
    every = torch.ones(len(values), dtype=torch.bool)
    return group_zscore(values, torch.tensor(groups), counted=every, ddof=ddof, eps=eps)


Normalise = Annotated[Plain | OverBatch | OverGroup, Field(discriminator="kind")]
