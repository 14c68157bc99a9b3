"""Plot and table: proxy (dashed) and true reward (solid) against the distance from the start."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stages.algorithms.selection import best_of_n_kl
from stages.reports import plot_style
from stages.reports.overoptimization import GOLD, PROXY
from stages.reports.overoptimization_curves import BEST_OF_N
from stages.reports.overoptimization_report import SCORERS, named, told

COLOURS = {PROXY: plot_style.RED, GOLD: plot_style.BLUE}
LINES = {PROXY: "--", GOLD: "-"}
LABELS = {PROXY: "proxy", GOLD: "true reward"}
COLUMNS: tuple[str, ...] = (
    "policy", "method", "scorer", "place", "reward", "distance", "bound", "value", "low", "high",
)  # fmt: skip
Measured = Mapping[str, Any]


def write(folder: Path, curves: Sequence[Measured]) -> list[str]:
    """`overoptimization.csv` and `overoptimization.png` in an existing folder; the image's name."""
    with (folder / "overoptimization.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for curve in curves for row in _rows(curve))
    _draw(folder / "overoptimization.png", curves)
    return ["overoptimization.png"]


def _rows(curve: Measured) -> list[dict[str, Any]]:
    return [
        {
            "policy": f"{named(curve)}: {LABELS[reward]}",
            "method": curve["method"],
            "scorer": curve["scorer"],
            "place": point["place"],
            "reward": reward,
            "distance": point["distance"],
            "bound": _bound(curve, point),
            **point[reward],
        }
        for reward in (PROXY, GOLD)
        for point in curve["points"]
    ]


def _bound(curve: Measured, point: Measured) -> float | None:
    """The largest distance that best-of-n can have; None of a run, which has no bound."""
    is_best_of_n = curve["method"] == BEST_OF_N
    return round(best_of_n_kl.bound(point["place"]) ** 0.5, 6) if is_best_of_n else None


def _draw(path: Path, curves: Sequence[Measured]) -> None:
    """A row of panels for each method, a column for each scorer."""
    methods = list(dict.fromkeys(_row(curve) for curve in curves)) or [""]
    scorers = list(dict.fromkeys(curve["scorer"] for curve in curves)) or [PROXY]
    with plot_style.applied():
        figure = Figure(figsize=(4.6 * len(scorers), 3.1 * len(methods)))
        grid = figure.subplots(len(methods), len(scorers), squeeze=False, sharey="row")
        for axes in grid.flat:
            axes.set_visible(not curves)
        for curve in curves:
            axes = grid[methods.index(_row(curve))][scorers.index(curve["scorer"])]
            axes.set_visible(True)
            _panel(axes, curve)
        if not curves:
            grid[0][0].text(0.5, 0.5, "no reward model in this plan", ha="center")
        plot_style.save(figure, path)


def _row(curve: Measured) -> str:
    """What a row of panels is of."""
    is_best_of_n = curve["method"] == BEST_OF_N
    return f"best-of-n from {curve['name']}" if is_best_of_n else curve["name"]


def _panel(axes: Axes, curve: Measured) -> None:
    for reward, colour in COLOURS.items():
        _points(axes, curve, reward, colour)
        if curve["fits"][reward] is not None:
            _fit(axes, curve["fits"][reward], colour, LINES[reward])
    if curve["method"] == BEST_OF_N:
        axes.plot(
            [best_of_n_kl.bound(point["place"]) ** 0.5 for point in curve["points"]],
            [point[GOLD]["value"] for point in curve["points"]],
            color=plot_style.GREY,
            linestyle=":",
            linewidth=1,
            label="true reward, at the bound",
        )
    unit = 100 * curve["units"][GOLD]
    accuracy = axes.secondary_yaxis(
        "right", functions=(lambda value: value * unit, lambda value: value / unit)
    )
    accuracy.set_ylabel("true reward, points")
    axes.axhline(0, color=plot_style.GREY, linewidth=0.8)
    axes.set_xlabel("square root of KL from the start, nats")
    axes.set_ylabel("reward, standard deviations")
    axes.set_title(f"{_row(curve)}: {SCORERS[curve['scorer']]}")
    axes.margins(y=0.15)
    axes.legend(fontsize=8)


def _points(axes: Axes, curve: Measured, reward: str, colour: str) -> None:
    found = told(curve)
    values = [point[reward]["value"] for point in found]
    axes.errorbar(
        [point["distance"] for point in found],
        values,
        yerr=[
            [max(0.0, point[reward]["value"] - point[reward]["low"]) for point in found],
            [max(0.0, point[reward]["high"] - point[reward]["value"]) for point in found],
        ],
        fmt="o" if reward == GOLD else "s",
        markerfacecolor=colour if reward == GOLD else "white",
        markersize=4,
        color=colour,
        capsize=2,
        linewidth=1,
    )


def _fit(axes: Axes, fit: Measured, colour: str, line: str) -> None:
    """The curve, its band, and its peak where that lies within what was measured."""
    band = fit["band"]
    label = "proxy, fit" if line == "--" else "true reward, fit"
    axes.plot(band["distance"], band["value"], color=colour, linestyle=line, label=label)
    axes.fill_between(band["distance"], band["low"], band["high"], color=colour, alpha=0.15, lw=0)
    if fit["peak_is_measured"]:
        axes.plot(fit["peak_distance"], fit["peak_reward"], marker="*", markersize=12, color=colour)
