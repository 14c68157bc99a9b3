"""The weight of a divergence, and how it follows what was measured."""

from typing import Annotated, Literal

from pydantic import Field

from stages.algorithms.kl import adaptive_coef, doubling_coef
from stages.params import Params


class Fixed(Params):
    """The same weight throughout."""

    kind: Literal["fixed"]
    value: float = Field(ge=0)
    """The weight."""

    def start(self) -> float:
        """The first weight."""
        return self.value

    def after(self, coef: float, measured: float, num_samples: int) -> float:  # noqa: ARG002
        """The next weight: the same."""
        return coef


class Adaptive(Params):
    """Ziegler et al.'s proportional controller."""

    kind: Literal["adaptive"]
    initial: float = Field(gt=0)
    """The first weight."""
    target: float = Field(gt=0)
    """The divergence of a whole completion to be held, in nats."""
    horizon: int = Field(gt=0)
    """Completions over which an error is made good."""

    def start(self) -> float:
        """The first weight."""
        return self.initial

    def after(self, coef: float, measured: float, num_samples: int) -> float:
        """See `adaptive_coef`."""
        return adaptive_coef(
            coef, measured, target=self.target, num_samples=num_samples, horizon=self.horizon
        )


class Doubling(Params):
    """Schulman et al.'s rule: halve or double when the divergence is 1.5 times off."""

    kind: Literal["doubling"]
    initial: float = Field(gt=0)
    """The first weight."""
    target: float = Field(gt=0)
    """The divergence to be held, in nats."""

    def start(self) -> float:
        """The first weight."""
        return self.initial

    def after(self, coef: float, measured: float, num_samples: int) -> float:  # noqa: ARG002
        """See `doubling_coef`."""
        return doubling_coef(coef, measured, target=self.target)


Coefficient = Annotated[Fixed | Adaptive | Doubling, Field(discriminator="kind")]
