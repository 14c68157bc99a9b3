"""Plots of proxy and true reward against the distance from the start, and of each run by step."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from stages.algorithms.selection import best_of_n
from stages.report import plots
from stages.studies.optimised_curves import BEST_OF_N
from stages.studies.overoptimization_report import SCORERS, told
from stages.studies.proxy_curves import GOLD, PROXY

COLOURS = {PROXY: plots.RED, GOLD: plots.BLUE}
LINES = {PROXY: "--", GOLD: "-"}
LABELS = {PROXY: "proxy", GOLD: "true reward"}
Measured = Mapping[str, Any]


def draw_curves(path: Path, curves: Sequence[Measured]) -> None:
    """A row of panels for each method, a column for each scorer."""
    methods = list(dict.fromkeys(_row(curve) for curve in curves)) or [""]
    scorers = list(dict.fromkeys(curve["scorer"] for curve in curves)) or [PROXY]
    with plots.figure(path, width=4.6 * len(scorers), height=3.1 * len(methods)) as figure:
        grid = figure.subplots(len(methods), len(scorers), squeeze=False, sharey="row")
        for axes in grid.flat:
            axes.set_visible(not curves)
        for curve in curves:
            axes = grid[methods.index(_row(curve))][scorers.index(curve["scorer"])]
            axes.set_visible(True)
            _panel(axes, curve)
        if not curves:
            grid[0][0].text(0.5, 0.5, "nothing to choose by", ha="center")


def _row(curve: Measured) -> str:
    """What a row of panels is of."""
    is_best_of_n = curve["method"] == BEST_OF_N
    return f"best-of-n from {curve['name']}" if is_best_of_n else curve["name"]


def _panel(axes: Axes, curve: Measured) -> None:
    for reward, colour in COLOURS.items():
        _points(axes, curve, reward, colour)
        if curve["fits"][reward] is not None:
            _fitted(axes, curve["fits"][reward], colour, LINES[reward])
    if curve["method"] == BEST_OF_N:
        axes.plot(
            [best_of_n.kl_bound(point["place"]) ** 0.5 for point in curve["points"]],
            [point[GOLD]["value"] for point in curve["points"]],
            color=plots.GREY,
            linestyle=":",
            linewidth=1,
            label="true reward, at the bound",
        )
    unit = 100 * curve["units"][GOLD]
    accuracy = axes.secondary_yaxis(
        "right", functions=(lambda value: value * unit, lambda value: value / unit)
    )
    accuracy.set_ylabel("true reward, points")
    axes.axhline(0, color=plots.GREY, linewidth=0.8)
    axes.set_xlabel("square root of KL from the start, nats")
    axes.set_ylabel("reward, standard deviations")
    axes.set_title(f"{_row(curve)}: {SCORERS[curve['scorer']]}")
    axes.margins(y=0.15)
    if axes.get_legend_handles_labels()[0]:  # none where too few points fix a fit
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


def _fitted(axes: Axes, fit: Measured, colour: str, line: str) -> None:
    """The curve, its band, and its peak where that lies within what was measured."""
    band = fit["band"]
    label = "proxy, fit" if line == "--" else "true reward, fit"
    axes.plot(band["distance"], band["value"], color=colour, linestyle=line, label=label)
    axes.fill_between(band["distance"], band["low"], band["high"], color=colour, alpha=0.15, lw=0)
    if fit["peak_is_measured"]:
        axes.plot(fit["peak_distance"], fit["peak_reward"], marker="*", markersize=12, color=colour)


PANELS = {
    "correct": "True accuracy (dev)",
    "reward_model": "Score by one reward model",
    "ensemble": "Score by the ensemble",
    "ensemble_std": "Disagreement of its members",
    "kl_k1": "KL from the start, nats",
    "entropy": "Entropy, nats a token",
    "tokens": "Tokens of a completion",
    "truncated": "Cut at the limit",
    "repetition": "Repeated runs of 4 tokens",
}
Seeds = Mapping[int, Mapping[str, Any]]


def draw_run(folder: Path, name: str, seeds: Seeds) -> list[str]:
    """A page of one run with a line a seed, and what the members disagree on; the images' names.

    Args:
        folder: there already.
        name: the run's.
        seeds: of each, what `checkpoint_results.summarise` found.
    """
    _page(folder / "training.png", name, seeds)
    _disagreement(folder / "disagreement.png", seeds)
    return ["training.png", "disagreement.png"]


def _page(path: Path, name: str, seeds: Seeds) -> None:
    colours = plots.colours(["", *map(str, seeds)])
    with plots.figure(path, width=9.6, height=7.6) as figure:
        figure.suptitle(name, x=0.02, ha="left", fontweight="bold")
        for axes, (quantity, title) in zip(figure.subplots(3, 3).flat, PANELS.items(), strict=True):
            axes.set_title(title, fontsize=10)
            axes.set_xlabel("step")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
            for seed, run in seeds.items():
                colour = colours[str(seed)]
                found = [one[quantity] for one in run["steps"].values()]
                axes.axvline(run["best_step"], color=colour, linestyle=":", linewidth=1)
                if None not in found:
                    _line(axes, list(map(int, run["steps"])), found, f"seed {seed}", colour)
            if not axes.collections:
                axes.text(0.5, 0.5, "not scored", transform=axes.transAxes, ha="center")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper right")


def _line(
    axes: Axes, places: list[Any], found: list[Mapping[str, float]], label: str, colour: str
) -> None:
    values = [one["value"] for one in found]
    axes.plot(places, values, "o-", color=colour, markersize=4, label=label)
    low, high = ([one[bound] for one in found] for bound in ("low", "high"))
    axes.fill_between(places, low, high, color=colour, alpha=0.2, lw=0)


def _disagreement(path: Path, seeds: Seeds) -> None:
    """The standard deviation between the ensemble's members against the KL, of every seed."""
    colours = plots.colours(["", *map(str, seeds)])
    with plots.figure(path, width=6.0, height=3.8) as figure:
        axes = figure.subplots()
        for seed, run in seeds.items():
            steps = list(run["steps"].values())
            if all(one["ensemble_std"] is not None for one in steps):
                places = [one["kl_k1"]["value"] for one in steps]
                found = [one["ensemble_std"] for one in steps]
                _line(axes, places, found, f"seed {seed}", colours[str(seed)])
        axes.set_xlabel("KL from the start, nats")
        axes.set_ylabel("standard deviation between members")
        axes.set_title("What the ensemble's members disagree on")
        if axes.lines:
            axes.legend()
        else:
            axes.text(0.5, 0.5, "one reward model", transform=axes.transAxes, ha="center")
