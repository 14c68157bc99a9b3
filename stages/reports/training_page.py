"""A run on one page: what it is paid, what is true, how far it goes and how it writes, by step."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stages.reports import plot_style
from stages.reports.checkpoint_summary import QUANTITIES

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


def write(folder: Path, runs: Runs) -> list[str]:
    """Write a page of each run, what the members disagree on, and the numbers; images' names.

    Args:
        folder: there already.
        runs: name -> what `checkpoint_summary.summarise` found.
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
