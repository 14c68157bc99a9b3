"""Rows of the table of parity, and the comparison that makes them."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from parity.reference import Computed

TRL = "1.16.0"
TITLES = ("method", "TRL", "compared", "loss or value", "gradient", "note")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    method: str
    compared: str
    value: float
    """Relative difference of the loss, or of what is compared."""
    gradient: float | None = None
    """The largest difference of a parameter's gradient, relative to that parameter's largest."""
    note: str = ""
    trl: str = TRL

    def cells(self) -> list[str]:
        differences = [self.value, self.gradient]
        return [
            self.method, self.trl, self.compared, *map(_shown, differences), self.note
        ]  # fmt: skip


def _shown(difference: float | None) -> str:
    return "" if difference is None else f"{difference:.0e}" if difference else "0"


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    """max |found - expected| / max |expected|."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    scale = expected.abs().max().item()
    assert scale > 0, "nothing to compare: all zeros"
    return (found - expected).abs().max().item() / scale


def largest_differences(
    ours: Computed | list[Computed], theirs: Computed | list[Computed]
) -> tuple[float, float]:
    """Of the losses, and of the gradients of any parameter, over the steps if there are several."""
    pairs = list(zip(_steps(ours), _steps(theirs), strict=True))
    for actual, expected in pairs:
        assert actual.gradients.keys() == expected.gradients.keys()
    # On policy the loss of standardised advantages is 0 but for rounding: no scale of its own.
    scale = max(abs(expected.loss) for _, expected in pairs)
    losses = [abs(item.loss - expected.loss) / scale for item, expected in pairs]
    gradients = [
        relative(item.gradients[name], expected.gradients[name])
        for item, expected in pairs
        for name in expected.gradients
    ]
    return max(losses), max(gradients)


def _steps(computed: Computed | list[Computed]) -> list[Computed]:
    return [computed] if isinstance(computed, Computed) else computed


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table, as in tests/parity/README.md."""
    lines = [TITLES, ["---"] * len(TITLES), *(Row(**row).cells() for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def as_property(row: Row) -> dict[str, Any]:
    return asdict(row)
