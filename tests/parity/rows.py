"""Rows of the table of parity, and the comparison that makes them."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from parity.reference import Computed

TITLES = ("method", "reference", "compared", "loss", "gradient", "note")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    method: str
    reference: str
    """TRL's version."""
    compared: str
    loss: float
    """Relative difference."""
    gradient: float | None
    """The largest difference of a parameter's gradient, relative to that parameter's largest."""
    note: str = ""

    def cells(self) -> list[str]:
        gradient = "" if self.gradient is None else f"{self.gradient:.0e}"
        return [
            self.method, self.reference, self.compared, f"{self.loss:.0e}", gradient, self.note
        ]  # fmt: skip


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    """max |found - expected| / max |expected|."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    scale = expected.abs().max().item()
    assert scale > 0, "nothing to compare: all zeros"
    return (found - expected).abs().max().item() / scale


def gradient_difference(ours: Computed, theirs: Computed) -> float:
    assert ours.gradients.keys() == theirs.gradients.keys()
    return max(relative(ours.gradients[name], theirs.gradients[name]) for name in ours.gradients)


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table, as in stages/README.md."""
    lines = [TITLES, ["---"] * len(TITLES), *(Row(**row).cells() for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def as_property(row: Row) -> dict[str, Any]:
    return asdict(row)
