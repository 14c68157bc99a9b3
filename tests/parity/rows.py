"""Rows of the table of parity, and the comparison that makes them."""

from dataclasses import dataclass
from typing import Any

import torch

Weights = dict[str, torch.Tensor]
# float32 on both sides: TRL's output layer computes in float32 whatever the model's precision.
TOLERANCE = 1e-5
TITLES = ("method", "TRL", "compared", "loss or value", "gradient", "note")


@dataclass(frozen=True, kw_only=True, slots=True)
class Computed:
    """A loss and the gradient of every parameter."""

    loss: float
    gradients: Weights


@dataclass(frozen=True)
class Row:
    method: str
    compared: str
    note: str = ""
    trl: str = "1.16.0"

    def cells(self, value: float, gradient: float | None) -> list[str]:
        """With the relative difference of the loss, or of what is compared, and the largest
        difference of a parameter's gradient, relative to that parameter's largest."""
        shown = ["" if x is None else f"{x:.0e}" if x else "0" for x in (value, gradient)]
        return [self.method, self.trl, self.compared, *shown, self.note]


def relative(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """max |actual - expected| / max |expected|."""
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    scale = expected.abs().max().item()
    assert scale > 0, "nothing to compare: all zeros"
    return (actual - expected).abs().max().item() / scale


def compare(ours: Any, theirs: Any) -> tuple[float, float | None]:
    """Of one or several steps the differences of losses and gradients; of values theirs."""
    if isinstance(ours, Computed):
        ours, theirs = [ours], [theirs]
    if isinstance(ours, torch.Tensor):
        return relative(ours, theirs), None
    if isinstance(ours[0], torch.Tensor):
        return max(relative(*pair) for pair in zip(ours, theirs, strict=True)), None
    pairs = list(zip(ours, theirs, strict=True))
    # On policy the loss of standardised advantages is 0 but for rounding: no scale of its own.
    scale = max(abs(expected.loss) for expected in theirs)
    losses = [abs(actual.loss - expected.loss) / scale for actual, expected in pairs]
    assert all(actual.gradients.keys() == expected.gradients.keys() for actual, expected in pairs)
    gradients = [relative(actual.gradients[name], expected.gradients[name])
                 for actual, expected in pairs for name in expected.gradients]  # fmt: skip
    return max(losses), max(gradients)


def markdown(rows: list[list[str]]) -> str:
    """The table, as in tests/parity/README.md."""
    lines = [TITLES, ["---"] * len(TITLES), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
