"""Plots of proxy and true reward against the distance from the start, and of each run by step."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stages.algorithms.selection import best_of_n
from stages.reports import plot_style
from stages.studies.checkpoint_measures import QUANTITIES
from stages.studies.optimised_curves import BEST_OF_N
from stages.studies.overoptimization_report import SCORERS, named, told
from stages.studies.proxy_curves import GOLD, PROXY

COLOURS = {PROXY: plot_style.RED, GOLD: plot_style.BLUE}
LINES = {PROXY: "--", GOLD: "-"}
LABELS = {PROXY: "proxy", GOLD: "true reward"}
COLUMNS: tuple[str, ...] = (
    "policy", "method", "scorer", "place", "reward", "distance", "bound", "value", "low", "high",
)  # fmt: skip
Measured = Mapping[str, Any]


def write_curves(folder: Path, curves: Sequence[Measured]) -> list[str]:
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
    return round(best_of_n.kl_bound(point["place"]) ** 0.5, 6) if is_best_of_n else None


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
            _fitted(axes, curve["fits"][reward], colour, LINES[reward])
    if curve["method"] == BEST_OF_N:
        axes.plot(
            [best_of_n.kl_bound(point["place"]) ** 0.5 for point in curve["points"]],
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
BOUNDS = ("value", "low", "high")
Runs = Mapping[str, Mapping[str, Any]]


def write_runs(folder: Path, runs: Runs) -> list[str]:
    """Write a page of each run, what the members disagree on, and the numbers; images' names.

    Args:
        folder: there already.
        runs: name -> what `checkpoint_measures.summarise` found.
    """
    rows = [
        {"policy": name, "step": int(step)}
        | {
            f"{quantity}{'' if bound == 'value' else f'_{bound}'}": one[quantity][bound]
            for quantity in QUANTITIES
            if one[quantity] is not None
            for bound in BOUNDS
        }
        for name, run in runs.items()
        for step, one in run["steps"].items()
    ]
    names = [f"{name}{bound}" for name in QUANTITIES for bound in ("", "_low", "_high")]
    with (folder / "training.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=["policy", "step", *names], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for name, run in runs.items():
        _page(folder / f"training-{name}.png", name, run)
    _disagreement(folder / "disagreement.png", runs)
    return [*(f"training-{name}.png" for name in runs), "disagreement.png"]


def _page(path: Path, name: str, run: Mapping[str, Any]) -> None:
    steps = {int(step): one for step, one in run["steps"].items()}
    with plot_style.applied():
        figure = Figure(figsize=(9.6, 7.6))
        figure.suptitle(name, x=0.02, ha="left", fontweight="bold")
        for axes, (quantity, title) in zip(figure.subplots(3, 3).flat, PANELS.items(), strict=True):
            axes.set_title(title, fontsize=10)
            axes.set_xlabel("step")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
            axes.axvline(run["best_step"], color=plot_style.GREY, linestyle=":", linewidth=1)
            if any(one[quantity] is None for one in steps.values()):
                axes.text(0.5, 0.5, "not scored", transform=axes.transAxes, ha="center")
            else:
                _line(axes, list(steps), [one[quantity] for one in steps.values()])
        plot_style.save(figure, path)


def _line(
    axes: Axes, places: list[Any], found: list[Mapping[str, float]], colour: str = plot_style.BLUE
) -> None:
    axes.plot(places, [one["value"] for one in found], "o-", color=colour, markersize=4)
    low, high = ([one[bound] for one in found] for bound in ("low", "high"))
    axes.fill_between(places, low, high, color=colour, alpha=0.2, lw=0)


def _disagreement(path: Path, runs: Runs) -> None:
    """The standard deviation between the ensemble's members against the KL, of every run."""
    colours = plot_style.colours(["", *runs])
    with plot_style.applied():
        figure = Figure(figsize=(6.0, 3.8))
        axes = figure.subplots()
        scored = {
            name: list(run["steps"].values())
            for name, run in runs.items()
            if all(one["ensemble_std"] is not None for one in run["steps"].values())
        }
        for name, steps in scored.items():
            places = [one["kl_k1"]["value"] for one in steps]
            _line(axes, places, [one["ensemble_std"] for one in steps], colours[name])
            axes.lines[-1].set_label(name)
        axes.set_xlabel("KL from the start, nats")
        axes.set_ylabel("standard deviation between members")
        axes.set_title("What the ensemble's members disagree on")
        if scored:
            axes.legend()
        else:
            axes.text(0.5, 0.5, "no ensemble in this plan", transform=axes.transAxes, ha="center")
        plot_style.save(figure, path)
