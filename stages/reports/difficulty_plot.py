"""Plot: accuracy of each policy by difficulty, and its numbers as CSV."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from stages.reports import plot_style

BOUNDS = ("value", "low", "high")


def draw(path: Path, groups: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> None:
    """A line a policy, with intervals; policies stand beside each other within a group."""
    names = list(groups[0]["policies"])
    offsets = np.linspace(-0.26, 0.26, len(names)) if len(names) > 1 else [0.0]
    with plot_style.applied():
        figure = Figure(figsize=(7.2, 4.4))
        axes = figure.subplots()
        for name, offset in zip(names, offsets, strict=True):
            found = [one["policies"][name]["accuracy"] for one in groups]
            value, low, high = (np.array([one[bound] for one in found]) for bound in BOUNDS)
            axes.errorbar(
                np.arange(len(groups)) + offset,
                value,
                yerr=[np.maximum(0, value - low), np.maximum(0, high - value)],
                fmt="o-",
                color=colours[name],
                markersize=4,
                linewidth=1.2,
                elinewidth=1.2,
                capsize=2,
                label=name,
            )
        axes.set_xticks(range(len(groups)), [str(one["group"]) for one in groups])
        axes.set_xlabel(f"difficulty by half of the samples of {names[0]}, 1 the hardest")
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_title("Accuracy of one sample, by difficulty")
        figure.legend(loc="outside lower center", ncols=min(4, len(names)))
        plot_style.save(figure, path)


def write(path: Path, groups: Sequence[Mapping[str, Any]]) -> None:
    """One row a group and policy."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["group", "problems", "policy", *BOUNDS])
        for one in groups:
            for name, policy in one["policies"].items():
                accuracy = policy["accuracy"]
                writer.writerow(
                    [one["group"], one["problems"], name, *(accuracy[bound] for bound in BOUNDS)]
                )
