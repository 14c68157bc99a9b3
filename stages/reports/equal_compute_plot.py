"""Plot: accuracy against what it costs to compute, samples as curves and searches as points."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from stages.reports import plot_style
from stages.reports.equal_compute_section import WAYS

MARKERS = dict(zip(WAYS, ("D", "s", "^"), strict=True))


def draw(path: Path, compared: Mapping[str, Any]) -> None:
    """A PNG of what `equal_compute.compare` found.

    A filled point stands at what the search cost as it was run, the hollow one beside it at what
    it would cost with a prefix cache.
    """
    names = [*compared["curves"], *compared["searches"]]
    colours = plot_style.colours(names)
    with plot_style.applied():
        figure = Figure(figsize=(7.2, 4.6))
        axes = figure.subplots()
        for name, curve in compared["curves"].items():
            _curve(axes, name, curve, colours[name])
        for name, search in compared["searches"].items():
            _search(axes, name, search, colours[name])
        if not names:
            axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", va="center")
        axes.set_xscale("log")
        axes.set_xlabel("floating-point operations a problem")
        axes.set_ylabel("test accuracy")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_title("Accuracy against compute")
        handles, labels = axes.get_legend_handles_labels()
        if names:
            figure.legend(handles, labels, loc="outside lower center", ncols=3)
        plot_style.save(figure, path)


def _curve(axes: Axes, name: str, curve: Mapping[str, Any], colour: str) -> None:
    entries = [curve[n] for n in sorted(curve, key=int)]
    flops = [entry["flops"] for entry in entries]
    axes.plot(
        flops, [one["value"] for one in entries], "-o", color=colour, label=name, markersize=3
    )
    lows, highs = ([entry[bound] for entry in entries] for bound in ("low", "high"))
    axes.fill_between(flops, lows, highs, color=colour, alpha=0.1, linewidth=0)
    last = max(curve, key=int)
    axes.annotate(
        f"n = {last}",
        (curve[last]["flops"], curve[last]["value"]),
        textcoords="offset points",
        xytext=(4, 0),
        fontsize=7,
        color=colour,
    )


def _search(axes: Axes, name: str, search: Mapping[str, Any], colour: str) -> None:
    for way, entry in search["accuracy"].items():
        error = [[entry["value"] - entry["low"]], [entry["high"] - entry["value"]]]
        axes.errorbar(
            search["flops"],
            entry["value"],
            yerr=error,
            fmt=MARKERS[way],
            color=colour,
            markersize=7,
            capsize=2,
            elinewidth=0.8,
            label=f"{name}, {WAYS[way]}",
        )
        axes.plot(
            search["flops_once"], entry["value"], MARKERS[way], color=colour, mfc="none", ms=7
        )
