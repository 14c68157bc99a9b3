"""Plot: accuracy against the number of samples drawn, a panel a policy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from stages.reports import plot_style

CURVES = {
    "pass_at": ("pass@n (any right)", plot_style.GREEN),
    "best_of": ("best-of-n (by score)", plot_style.RED),
    "majority_at": ("majority@n", plot_style.BLUE),
    "mean_accuracy": ("mean (one sample)", plot_style.GREY),
}


def draw(path: Path, policies: Mapping[str, Mapping[str, Any]]) -> None:
    """A panel a policy: accuracy of each way to choose among n samples, with bands."""
    with plot_style.applied():
        columns = min(2, len(policies))
        rows = -(-len(policies) // columns)
        figure = Figure(figsize=(4.6 * columns, 3.3 * rows + 0.5))
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, (name, policy) in zip(grid.flat, policies.items(), strict=False):
            _accuracy_panel(axes, name, policy)
        for axes in list(grid.flat)[len(policies) :]:
            axes.set_visible(False)
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.suptitle("Accuracy against the number of samples of a problem")
        plot_style.save(figure, path)


def _accuracy_panel(axes: Axes, name: str, policy: Mapping[str, Any]) -> None:
    ns = [int(n) for n in policy["best_of"]]
    for table, (label, colour) in CURVES.items():
        one = policy[table]
        entries = [one] * len(ns) if table == "mean_accuracy" else [one[str(n)] for n in ns]
        style = "--" if table == "mean_accuracy" else "-"
        marker = "" if table == "mean_accuracy" else "o"
        values = [entry["value"] for entry in entries]
        axes.plot(ns, values, style, color=colour, label=label, marker=marker, markersize=4)
        lows, highs = ([entry[bound] for entry in entries] for bound in ("low", "high"))
        axes.fill_between(ns, lows, highs, color=colour, alpha=0.13, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ns, [str(n) for n in ns])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title(name)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    subplot = axes.get_subplotspec()
    if subplot is None or subplot.is_last_row():
        axes.set_xlabel("n")
    if subplot is None or subplot.is_first_col():
        axes.set_ylabel("test accuracy")
