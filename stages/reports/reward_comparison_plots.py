"""The plots of the comparison of rewards: AUC of each scorer, accuracy under label noise."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from stages.reports import plot_style

BOUNDS = ("value", "low", "high")
Curves = Mapping[str, Sequence[Mapping[str, Any]]]


def draw(folder: Path, pools: Mapping[str, Any], curves: Curves) -> list[str]:
    """Write all of them into a new folder; returns the names of the images."""
    folder.mkdir()
    rows = [
        {"pool": pool, "scorer": name, **{bound: one["auc"][bound] for bound in BOUNDS}}
        for pool, content in pools.items()
        for name, one in content["scorers"].items()
        if one["auc"] is not None
    ]
    points = [{"pairs": pairs, **row} for pairs, curve in curves.items() for row in curve]
    write(folder / "auc.csv", ["pool", "scorer", *BOUNDS], rows)
    write(folder / "noise.csv", ["pairs", "model", "flip", *BOUNDS], points)
    areas(folder / "auc.png", rows)
    noise(folder / "noise.png", curves)
    return ["auc.png", "noise.png"]


def areas(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """A line a scorer and pool; the colour is the pool's."""
    colours = plot_style.colours(dict.fromkeys(row["pool"] for row in rows))
    with plot_style.applied():
        figure = Figure(figsize=(7.0, 0.35 * max(3, len(rows)) + 1.2))
        axes = figure.subplots()
        axes.axvline(0.5, color=plot_style.GREY, linestyle="--", linewidth=1)
        for place, row in enumerate(rows):
            low, high = row["value"] - row["low"], row["high"] - row["value"]
            axes.errorbar(
                row["value"],
                place,
                xerr=[[max(0.0, low)], [max(0.0, high)]],
                fmt="o",
                color=colours[row["pool"]],
                capsize=3,
            )
        axes.set_yticks(range(len(rows)), [f"{row['scorer']} ({row['pool']})" for row in rows])
        axes.set_ylim(max(1, len(rows)) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("AUC within a problem")
        axes.set_title("How well scores tell right from wrong completions")
        absent(axes, rows)
        plot_style.save(figure, path)


def noise(path: Path, curves: Curves) -> None:
    """A curve for each set of pairs: accuracy on held-out pairs over the share of flipped ones."""
    colours = plot_style.colours(curves)
    with plot_style.applied():
        figure = Figure(figsize=(6.0, 3.8))
        axes = figure.subplots()
        axes.axhline(0.5, color=plot_style.GREY, linestyle="--", linewidth=1)
        for name, rows in curves.items():
            axes.errorbar(
                [row["flip"] / 100 for row in rows],
                [row["value"] for row in rows],
                yerr=[
                    [max(0.0, row["value"] - row["low"]) for row in rows],
                    [max(0.0, row["high"] - row["value"]) for row in rows],
                ],
                fmt="o",
                color=colours[name],
                capsize=3,
                label=name,
            )
            means = mean_by_flip(rows)
            axes.plot([flip / 100 for flip in means], list(means.values()), color=colours[name])
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xlabel("training labels flipped")
        axes.set_ylabel("held-out pairs ordered rightly")
        axes.set_title("Reward models under label noise")
        if curves:
            axes.legend(fontsize=8)
        absent(axes, curves)
        plot_style.save(figure, path)


def mean_by_flip(rows: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """The mean accuracy of the models of each share of flipped labels, by rising share."""
    by_flip: dict[int, list[float]] = {}
    for row in rows:
        by_flip.setdefault(row["flip"], []).append(row["value"])
    return {flip: sum(values) / len(values) for flip, values in sorted(by_flip.items())}


def absent(axes: Axes, drawn: Any) -> None:
    """Say so where there is nothing to draw."""
    if not drawn:
        axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", va="center")


def write(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """The numbers as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
