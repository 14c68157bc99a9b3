"""The plot of an outcome reward model's calibration on held-out completions, and its numbers."""

from collections.abc import Sequence
from pathlib import Path

from stages.algorithms.statistics.calibration import ReliabilityBin
from stages.reports import reliability_plot


def draw(folder: Path, bins: Sequence[ReliabilityBin]) -> None:
    """Write both into a new folder."""
    folder.mkdir()
    reliability_plot.draw(
        folder / "reliability.png",
        bins,
        predicted="predicted P(right), had right and wrong been equally likely",
        found="how often it is right",
    )
    reliability_plot.write(folder / "reliability.csv", bins)
