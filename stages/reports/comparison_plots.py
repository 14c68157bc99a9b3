"""All plots of the comparison, and their numbers as CSV."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.reports import (
    accuracy_by_n_plot,
    learning_curves_plot,
    mean_accuracy_plot,
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
    mean_accuracy_plot.draw(folder / "mean_accuracy.png", evaluations)
    accuracy_by_n_plot.draw(folder / "accuracy_by_n.png", evaluations)
    learning_curves_plot.draw(folder / "learning_curves.png", curves)
    plot_tables.mean_accuracy(folder / "mean_accuracy.csv", evaluations)
    for name, evaluation in evaluations.items():
        plot_tables.accuracy_by_n(folder / f"accuracy_by_n_{name}.csv", evaluation)
    for name, points in curves.items():
        plot_tables.learning_curve(folder / f"learning_curve_{name}.csv", points)
    return ["mean_accuracy.png", "accuracy_by_n.png", "learning_curves.png"]
