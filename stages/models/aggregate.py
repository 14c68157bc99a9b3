"""How the scores of an ensemble's members become one score."""

from typing import Annotated, Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from stages.algorithms import ensemble
from stages.params import Params


class Mean(Params):
    """What the members find on average."""

    kind: Literal["mean"]

    def __call__(self, scores: Float[Tensor, "member batch"]) -> Float[Tensor, " batch"]:
        """See `ensemble.mean`."""
        return ensemble.mean(scores)


class Minimum(Params):
    """What the most sceptical member finds."""

    kind: Literal["min"]

    def __call__(self, scores: Float[Tensor, "member batch"]) -> Float[Tensor, " batch"]:
        """See `ensemble.minimum`."""
        return ensemble.minimum(scores)


class MeanMinusStd(Params):
    """The mean, less so where the members disagree."""

    kind: Literal["mean_minus_std"]
    k: float = Field(ge=0)
    """Standard deviations taken off."""

    def __call__(self, scores: Float[Tensor, "member batch"]) -> Float[Tensor, " batch"]:
        """See `ensemble.mean_minus_std`."""
        return ensemble.mean_minus_std(scores, weight=self.k)


class MeanMinusVariance(Params):
    """The mean, much less so where the members disagree much."""

    kind: Literal["mean_minus_variance"]
    k: float = Field(ge=0)
    """Weight of the variance, which depends on the rewards' scale; Coste et al.: 0.1 to 0.5."""

    def __call__(self, scores: Float[Tensor, "member batch"]) -> Float[Tensor, " batch"]:
        """See `ensemble.mean_minus_variance`."""
        return ensemble.mean_minus_variance(scores, weight=self.k)


Aggregate = Annotated[
    Mean | Minimum | MeanMinusStd | MeanMinusVariance, Field(discriminator="kind")
]
"""The section `ensemble` of params.yaml; a single reward model is left as it is by each of them."""
