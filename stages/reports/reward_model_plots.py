"""The plots of a reward model's quality on held-out pairs, and their numbers as CSV."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.algorithms.statistics.calibration import ReliabilityBin
from stages.reports import accuracy_by_length_plot, reliability_plot


def draw(folder: Path, quality: Mapping[str, Any], bins: Sequence[ReliabilityBin]) -> None:
    """Write all of them into a new folder."""
    folder.mkdir()
    reliability_plot.draw(
        folder / "reliability.png",
        bins,
        predicted="confidence in the preferred completion",
        found="how often it is the better one",
    )
    reliability_plot.write(folder / "reliability.csv", bins)
    accuracy_by_length_plot.draw(folder / "accuracy_by_length.png", quality)
    accuracy_by_length_plot.write(folder / "accuracy_by_length.csv", quality)
