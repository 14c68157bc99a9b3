"""Which verdicts become preferences, and with what probability."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.algorithms import judge_readings
from stages.params import Params

DECIMALS = 7
"""Of a probability that is the mean of two with 6 decimals each."""


class LabelRule(Params):
    """What is done with ties, with doubts and with a judge that contradicts itself."""

    labels: Literal["soft", "hard"]
    """`soft`: the averaged probability is kept (Lee et al. 2023); `hard`: it becomes 1, and exact
    ties, of which neither is better, are dropped."""
    min_option_mass: float = Field(ge=0, le=1)
    """An order in which less probability than this falls on the options is a parse failure."""
    min_confidence: float = Field(ge=0, le=0.5)
    """Pairs with |p - 1/2| below this are dropped; 0 keeps all, with soft labels even exact
    ties: A is chosen."""
    inconsistent: Literal["keep", "drop"]
    """Pairs of which the two orders prefer different answers."""
    clamp: tuple[Annotated[float, Field(ge=0, le=1)], Annotated[float, Field(ge=0, le=1)]] | None
    """Bounds of the kept probability, such as [0.4, 0.6] after reasoning (Bai et al. 2022, section
    4.1, https://arxiv.org/abs/2212.08073); confidence is measured before. null: none."""

    @model_validator(mode="after")
    def _around_a_half(self) -> "LabelRule":
        if self.clamp is not None and not self.clamp[0] < 0.5 < self.clamp[1]:
            raise ValueError(f"expected bounds around 0.5, found {list(self.clamp)}")
        return self

    def reason_to_drop(self, p12: float, p21: float, mass: float) -> str | None:
        """Why a pair becomes no preference; None: it becomes one."""
        if mass < self.min_option_mass:
            return "parse_failure"
        if self.inconsistent == "drop" and not judge_readings.orders_agree(p12, p21):
            return "inconsistent"
        # Rounded: 0.6 - 0.5 is below 0.1 in floats.
        confidence = round(abs(judge_readings.soft_label(p12, p21) - 0.5), DECIMALS)
        if self.labels == "hard" and confidence == 0:
            return "tie"
        if confidence < self.min_confidence:
            return "low_confidence"
        return None

    def probability(self, p_chosen: float) -> float:
        """What the preference says of the one chosen, of the averaged `p_chosen` >= 1/2."""
        assert p_chosen >= 0.5, p_chosen
        if self.labels == "hard":
            return 1.0
        return min(p_chosen, self.clamp[1]) if self.clamp is not None else p_chosen
