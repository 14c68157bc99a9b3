"""Lambda of generalised advantage estimation: fixed, or longer for longer completions."""

from typing import Annotated, Literal

from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.token_advantages import length_adaptive_lambda
from stages.params import Params


class FixedLambda(Params):
    """One lambda for every completion."""

    kind: Literal["fixed"]
    value: float = Field(ge=0, le=1)
    """1: return minus value; 0: the one-step residual."""

    def __call__(self, mask: Bool[Tensor, "batch token"]) -> float:  # noqa: ARG002
        """The value."""
        return self.value


class LengthAdaptive(Params):
    """1 - 1 / (alpha length): VAPO."""

    kind: Literal["length_adaptive"]
    alpha: float = Field(gt=0)
    """0.05 in the paper."""

    def __call__(self, mask: Bool[Tensor, "batch token"]) -> Float[Tensor, " batch"]:
        """See `length_adaptive_lambda`."""
        return length_adaptive_lambda(mask.sum(1), alpha=self.alpha)


Lambda = Annotated[FixedLambda | LengthAdaptive, Field(discriminator="kind")]
