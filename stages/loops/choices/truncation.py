"""What a completion that was cut at the length limit counts for."""

from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.params import Params

Flags = Bool[Tensor, " batch"]
Rewards = Float[Tensor, " batch"]


class Penalise(Params):
    """It is learned from like any other, its reward lowered."""

    kind: Literal["penalise"]
    penalty: float = Field(ge=0)
    """Subtracted from its reward; at 0 it is judged by what it says."""

    def rewards(self, rewards: Rewards, truncated: Flags) -> Rewards:
        """The rewards, those of cut completions lowered."""
        return rewards - self.penalty * truncated

    def in_baseline(self, truncated: Flags) -> Flags:
        """Which completions the baseline is made of: all."""
        return torch.ones_like(truncated)

    def in_loss(self, truncated: Flags) -> Flags:
        """Which completions are learned from: all."""
        return torch.ones_like(truncated)


class Mask(Params):
    """It is not learned from; its reward still counts in its group's baseline."""

    kind: Literal["mask"]

    def rewards(self, rewards: Rewards, truncated: Flags) -> Rewards:  # noqa: ARG002
        """The rewards, as they are."""
        return rewards

    def in_baseline(self, truncated: Flags) -> Flags:
        """Which completions the baseline is made of: all."""
        return torch.ones_like(truncated)

    def in_loss(self, truncated: Flags) -> Flags:
        """Which completions are learned from: those that ended."""
        return ~truncated


class Exclude(Params):
    """It is not learned from, and the baseline is that of the others."""

    kind: Literal["exclude"]

    def rewards(self, rewards: Rewards, truncated: Flags) -> Rewards:  # noqa: ARG002
        """The rewards, as they are."""
        return rewards

    def in_baseline(self, truncated: Flags) -> Flags:
        """Which completions the baseline is made of: those that ended."""
        return ~truncated

    def in_loss(self, truncated: Flags) -> Flags:
        """Which completions are learned from: those that ended."""
        return ~truncated


Truncation = Annotated[Penalise | Mask | Exclude, Field(discriminator="kind")]
