"""Plot: everything about one training run on one page, and its numbers as CSV."""

import csv
from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stages.reports import plot_style
from stages.reports.learning_curves_plot import SMOOTHED_STEPS, smooth
from stages.reports.training_series import Series

COLUMNS = 3


def draw(path: Path, quantities: Mapping[str, Series]) -> None:
    """A panel a quantity."""
    rows = -(-len(quantities) // COLUMNS)
    with plot_style.applied():
        figure = Figure(figsize=(8.4, 1.85 * rows + 0.3))
        grid = figure.subplots(rows, COLUMNS, squeeze=False)
        for axes, (name, series) in zip(grid.flat, quantities.items(), strict=False):
            steps, values = [step for step, _ in series], [value for _, value in series]
            is_long = len(values) >= 2 * SMOOTHED_STEPS
            shown = smooth(values) if is_long else values
            if is_long:
                axes.plot(steps, values, color=plot_style.BLUE, alpha=0.35, linewidth=1)
            axes.plot(steps, shown, color=plot_style.BLUE, linewidth=2)
            axes.set_title(name, fontsize=9.5)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
            axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
        for place, axes in enumerate(grid.flat):
            axes.set_visible(place < len(quantities))
        figure.supxlabel("step", fontsize=10)
        plot_style.save(figure, path)


def write(path: Path, runs: Mapping[str, Mapping[str, Series]]) -> None:
    """One row a run, quantity and step."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["run", "quantity", "step", "value"])
        for entry, quantities in runs.items():
            for name, series in quantities.items():
                writer.writerows([entry, name, step, round(value, 6)] for step, value in series)
