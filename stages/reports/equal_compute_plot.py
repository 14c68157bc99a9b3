"""Plot: accuracy against operations and tokens, samples as curves and searches as points."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter, ScalarFormatter

from stages.reports import plot_style
from stages.reports.equal_compute import Unit
from stages.reports.equal_compute_section import WAYS

MARKERS = dict(zip(WAYS, ("D", "s", "^"), strict=True))


PANELS: tuple[tuple[Unit, str], ...] = (
    ("flops", "floating-point operations a problem"),
    ("tokens", "generated tokens a problem"),
)


def draw(path: Path, compared: Mapping[str, Any]) -> None:
    """A PNG of what `equal_compute.compare` found: against operations, and against tokens.

    On the left a filled point stands at what the search cost as it was run, the hollow one beside
    it at what it would cost with a prefix cache.
    """
    names = [*compared["curves"], *compared["searches"]]
    colours = plot_style.colours(names)
    with plot_style.applied():
        figure = Figure(figsize=(9.2, 4.6))
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (unit, label) in zip(panels, PANELS, strict=True):
            for name, curve in compared["curves"].items():
                _curve(axes, name, curve, unit, colours[name])
            for name, search in compared["searches"].items():
                _search(axes, name, search, unit, colours[name])
            if not names:
                axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", va="center")
            axes.set_xscale("log", base=10 if unit == "flops" else 2)
            if unit == "tokens":
                axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.set_xlabel(label)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        panels[0].set_ylabel("test accuracy")
        figure.suptitle("Accuracy against compute, and against generated tokens")
        handles, labels = panels[0].get_legend_handles_labels()
        if names:
            figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
        plot_style.save(figure, path)


def _curve(axes: Axes, name: str, curve: Mapping[str, Any], unit: Unit, colour: str) -> None:
    entries = [curve[n] for n in sorted(curve, key=int)]
    costs = [entry[unit] for entry in entries]
    axes.plot(
        costs, [one["value"] for one in entries], "-o", color=colour, label=name, markersize=3
    )
    lows, highs = ([entry[bound] for entry in entries] for bound in ("low", "high"))
    axes.fill_between(costs, lows, highs, color=colour, alpha=0.1, linewidth=0)
    last = max(curve, key=int)
    axes.annotate(
        f"n = {last}",
        (curve[last][unit], curve[last]["value"]),
        textcoords="offset points",
        xytext=(4, 0),
        fontsize=7,
        color=colour,
    )


def _search(axes: Axes, name: str, search: Mapping[str, Any], unit: Unit, colour: str) -> None:
    for way, entry in search["accuracy"].items():
        error = [[entry["value"] - entry["low"]], [entry["high"] - entry["value"]]]
        axes.errorbar(
            search[unit],
            entry["value"],
            yerr=error,
            fmt=MARKERS[way],
            color=colour,
            markersize=7,
            capsize=2,
            elinewidth=0.8,
            label=f"{name}, {WAYS[way]}",
        )
        if unit == "flops":
            axes.plot(
                search["flops_once"], entry["value"], MARKERS[way], color=colour, mfc="none", ms=7
            )
