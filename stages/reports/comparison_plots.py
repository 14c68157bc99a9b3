"""All plots of the comparison, and their numbers as CSV."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.reports import (
    accuracy_by_n_plot,
    learning_curves_plot,
    mean_accuracy_plot,
    plot_style,
    plot_tables,
)
from stages.reports.learning_curve import CurvePoint


def draw(
    folder: Path,
    evaluations: Mapping[str, Mapping[str, Any]],
    curves: Mapping[str, Sequence[CurvePoint]],
) -> list[str]:
    """Write all of them into a new folder; returns the names of the images, most telling first."""
    folder.mkdir()
    colours = plot_style.colours(dict.fromkeys([*evaluations, *curves]))
    mean_accuracy_plot.draw(folder / "mean_accuracy.png", evaluations, colours)
    accuracy_by_n_plot.draw(folder / "accuracy_by_n.png", evaluations)
    learning_curves_plot.draw(folder / "learning_curves.png", curves, colours)
    plot_tables.mean_accuracy(folder / "mean_accuracy.csv", evaluations)
    plot_tables.accuracy_by_n(folder / "accuracy_by_n.csv", evaluations)
    plot_tables.learning_curves(folder / "learning_curves.csv", curves)
    return ["mean_accuracy.png", "accuracy_by_n.png", "learning_curves.png"]
