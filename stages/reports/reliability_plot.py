"""Plot: how often a prediction comes true, by how sure the model is of it."""

import csv
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from stages.algorithms.statistics.calibration import ReliabilityBin
from stages.reports import plot_style

FIELDS = ("confidence", "accuracy", "count")


def draw(path: Path, bins: Sequence[ReliabilityBin], *, predicted: str, found: str) -> None:
    """A point a bin, its area the number of predictions; on the diagonal both are equal."""
    largest = max(one.count for one in bins)
    with plot_style.applied():
        figure = Figure(figsize=(4.6, 4.4))
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=plot_style.GREY, linestyle="--", linewidth=1)
        axes.plot(
            [one.confidence for one in bins],
            [one.accuracy for one in bins],
            color=plot_style.BLUE,
            linewidth=1.5,
        )
        axes.scatter(
            [one.confidence for one in bins],
            [one.accuracy for one in bins],
            s=[10 + 70 * one.count / largest for one in bins],
            color=plot_style.BLUE,
            clip_on=False,
            zorder=3,
        )
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        # Confidence in the preferred of two sides is never below a half.
        axes.set_xlim(0.5 if min(one.confidence for one in bins) >= 0.5 else 0, 1)
        axes.set_ylim(0.5 if min(one.accuracy for one in bins) >= 0.5 else 0, 1)
        axes.set_xlabel(predicted)
        axes.set_ylabel(found)
        axes.set_title(f"Reliability on {sum(one.count for one in bins):,} held-out predictions")
        plot_style.save(figure, path)


def write(path: Path, bins: Sequence[ReliabilityBin]) -> None:
    """The numbers: one row a bin."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for one in bins:
            writer.writerow([round(one.confidence, 6), round(one.accuracy, 6), one.count])
