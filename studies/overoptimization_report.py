"""Overoptimization in words, tables (Markdown) and plots of both rewards against the distance."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from stages.algorithms.selection import best_of_n
from stages.report import plots
from studies import study as studies
from studies.proxy_curves import BEST_OF_N, GOLD, PROXY

SCORERS = {"reward_model": "one reward model", "ensemble": "the ensemble"}
REWARDS = {PROXY: "proxy", GOLD: "true reward"}
COLOURS = {PROXY: plots.RED, GOLD: plots.BLUE}
LINES = {PROXY: "--", GOLD: "-"}
Measured = Mapping[str, Any]


def render_report(metrics: Measured, *, images: Sequence[str]) -> str:
    """The report on `data/studies/overoptimization/metrics.json`; `images`: paths of the plots."""
    return studies.render(
        "overoptimization", images=images, rewards=REWARDS, best_of_n=BEST_OF_N,
        name_curve=name_curve, select_points=select_points, kl_bound=best_of_n.kl_bound, **metrics,
    )  # fmt: skip


def select_points(curve: Measured) -> list[Measured]:
    """The points that are shown one by one: of best-of-n the powers of two and the last."""
    points = curve["points"]
    if curve["method"] != BEST_OF_N:
        return list(points)
    return [
        point
        for point in points
        if not point["place"] & (point["place"] - 1) or point is points[-1]
    ]


def name_curve(curve: Measured) -> str:
    """`best-of-n from sft, by the ensemble`, `ppo, scored by one reward model`."""
    by = "by" if curve["method"] == BEST_OF_N else "scored by"
    return f"{_row(curve)}, {by} {SCORERS[curve['scorer']]}"


def _row(curve: Measured) -> str:
    is_best_of_n = curve["method"] == BEST_OF_N
    return f"best-of-n from {curve['name']}" if is_best_of_n else curve["name"]


def draw_curves(path: Path, curves: Sequence[Measured]) -> None:
    """A row of panels for each method, a column for each scorer."""
    methods = list(dict.fromkeys(_row(curve) for curve in curves)) or [""]
    scorers = list(dict.fromkeys(curve["scorer"] for curve in curves)) or [PROXY]
    with plots.save_figure(path, width=4.6 * len(scorers), height=3.1 * len(methods)) as figure:
        grid = figure.subplots(len(methods), len(scorers), squeeze=False, sharey="row")
        for axes in grid.flat:
            axes.set_visible(not curves)
        for curve in curves:
            axes = grid[methods.index(_row(curve))][scorers.index(curve["scorer"])]
            axes.set_visible(True)
            _panel(axes, curve)
        if not curves:
            grid[0][0].text(0.5, 0.5, "nothing to choose by", ha="center")


def _panel(axes: Axes, curve: Measured) -> None:
    for reward in REWARDS:
        _reward(axes, curve, reward)
    if curve["method"] == BEST_OF_N:
        bounds = [best_of_n.kl_bound(point["place"]) ** 0.5 for point in curve["points"]]
        values = [point[GOLD]["value"] for point in curve["points"]]
        label = "true reward, at the bound"
        axes.plot(bounds, values, color=plots.GREY, linestyle=":", linewidth=1, label=label)
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


def _reward(axes: Axes, curve: Measured, reward: str) -> None:
    """Points with intervals; the fit, its band, and its peak where that lies among the points."""
    points, colour, fit = select_points(curve), COLOURS[reward], curve["fits"][reward]
    keys = ("value", "low", "high")
    values, low, high = (np.array([point[reward][key] for point in points]) for key in keys)
    axes.errorbar(
        [point["distance"] for point in points], values,
        yerr=np.maximum([values - low, high - values], 0.0), fmt="o" if reward == GOLD else "s",
        markerfacecolor=colour if reward == GOLD else "white", markersize=4, color=colour,
        capsize=2, linewidth=1,
    )  # fmt: skip
    if fit is not None:
        distance, value, low, high = (fit["band"][key] for key in ("distance", *keys))
        label = f"{REWARDS[reward]}, fit"
        axes.plot(distance, value, color=colour, linestyle=LINES[reward], label=label)
        axes.fill_between(distance, low, high, color=colour, alpha=0.15, lw=0)
        if fit["peak_is_measured"]:
            peak = fit["peak_distance"], fit["peak_reward"]
            axes.plot(*peak, marker="*", markersize=12, color=colour)
