"""Plot: accuracy against the number of samples drawn, a panel a policy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from stages.reports import plot_style

CURVES = {
    "pass": ("pass (any right)", plot_style.GREEN, "-"),
    "majority": ("majority", plot_style.BLUE, "-"),
    "best_of/reward_model": ("best by reward model", plot_style.RED, "-"),
    "best_of/outcome": ("best by outcome model", plot_style.ORANGE, "-"),
    "best_of/process": ("best by process model", plot_style.PINK, "-"),
    "weighted/process": ("vote by process model", plot_style.PINK, ":"),
    "best_of/mean_logprob": ("best by own log-prob", plot_style.BLACK, ":"),
}
"""Method -> its name, colour and line; policies without one have no such line."""


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
        handles: dict[str, Any] = {}
        for axes in grid.flat:
            found = axes.get_legend_handles_labels()
            handles |= dict(zip(found[1], found[0], strict=True))
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=4, fontsize=8
        )
        figure.suptitle("Accuracy against the number of samples of a problem")
        plot_style.save(figure, path)


def _accuracy_panel(axes: Axes, name: str, policy: Mapping[str, Any]) -> None:
    at = policy["accuracy_at"]
    ns = [int(n) for n in at["majority"]]
    lines = [(at[method], *rest) for method, rest in CURVES.items() if method in at]
    mean = {str(n): policy["mean_accuracy"] for n in ns}
    lines.append((mean, "mean (one sample)", plot_style.GREY, "--"))
    for of_n, label, colour, style in lines:
        entries = [of_n[str(n)] for n in ns]
        values, lows, highs = ([one[key] for one in entries] for key in ("value", "low", "high"))
        axes.plot(ns, values, style, color=colour, label=label, marker="o", markersize=3)
        axes.fill_between(ns, lows, highs, color=colour, alpha=0.1, linewidth=0)
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
