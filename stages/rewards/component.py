"""A component of a reward: what is measured, and how much of it is paid.

Its values are capped, then put in units of their own spread, then weighted.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from stages.algorithms.group_advantages import group_zscore
from stages.params import Params
from stages.rewards.model_components import Judge, Own, Process, Scorer
from stages.rewards.text_components import (
    Answer,
    Boxed,
    FinalLine,
    Language,
    LengthPenalty,
    LengthTarget,
    NgramRepetition,
    Overlong,
    Tags,
)


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


Value = Annotated[
    Answer
    | FinalLine
    | Boxed
    | Tags
    | LengthPenalty
    | LengthTarget
    | NgramRepetition
    | Overlong
    | Language
    | Scorer
    | Process
    | Judge
    | Own,
    Field(discriminator="kind"),
]


class Cap(Params):
    """Bounds that a component's values are cut at; null: none on that side."""

    low: float | None
    """No value counts for less."""
    high: float | None
    """No value counts for more."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> "Cap":
        if self.low is None and self.high is None:
            raise ValueError("a cap without a bound: write cap: null")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")
        return self


class Component(Params):
    """capped, then normalised, then weighted."""

    value: Value
    weight: float
    """What 1 of it is worth; below 0 it is punished."""
    cap: Cap | None
    """Of its values as they are found; null: none."""
    normalise: Normalise
    """Of its values as they are capped."""

    def capped(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The values, or step rewards, within the cap."""
        if self.cap is None:
            return values
        return values.clamp(min=self.cap.low, max=self.cap.high)
