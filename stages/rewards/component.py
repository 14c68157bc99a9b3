"""A component of a reward: what is measured, and how much of it is paid."""

from typing import Annotated

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from stages.params import Params
from stages.rewards.components.answer import Answer
from stages.rewards.components.boxed import Boxed
from stages.rewards.components.final_line import FinalLine
from stages.rewards.components.judge import Judge
from stages.rewards.components.language import Language
from stages.rewards.components.length_penalty import LengthPenalty
from stages.rewards.components.length_target import LengthTarget
from stages.rewards.components.ngram_repetition import NgramRepetition
from stages.rewards.components.overlong import Overlong
from stages.rewards.components.own import Own
from stages.rewards.components.process import Process
from stages.rewards.components.scorer import Scorer
from stages.rewards.components.tags import Tags
from stages.rewards.normalise import Normalise

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
