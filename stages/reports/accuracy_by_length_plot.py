"""Plot: how often a reward model orders pairs rightly, by how much longer the better one is."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from stages.reports import plot_style

FIELDS = ("value", "low", "high", "pairs")


def draw(path: Path, quality: Mapping[str, Any]) -> None:
    """An interval for each bucket of length differences; buckets without pairs are empty."""
    buckets: Mapping[str, Any] = quality["accuracy_by_length_difference"]
    with plot_style.applied():
        figure = Figure(figsize=(6.0, 3.6))
        axes = figure.subplots()
        axes.axhline(0.5, color=plot_style.GREY, linestyle="--", linewidth=1)
        for place, one in enumerate(buckets.values()):
            if one is None:
                continue
            axes.errorbar(
                place,
                one["value"],
                yerr=[
                    [max(0.0, one["value"] - one["low"])],
                    [max(0.0, one["high"] - one["value"])],
                ],
                fmt="o",
                color=plot_style.BLUE,
                capsize=3,
            )
        names = [f"{name}\n{one['pairs'] if one else 0} pairs" for name, one in buckets.items()]
        axes.set_xticks(range(len(buckets)), names)
        axes.set_xlim(-0.5, len(buckets) - 0.5)
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xlabel("tokens of the better completion minus tokens of the other")
        axes.set_ylabel("pairs ordered rightly")
        axes.set_title("Does the reward know more than lengths?")
        plot_style.save(figure, path)


def write(path: Path, quality: Mapping[str, Any]) -> None:
    """The numbers: one row a bucket, without numbers where it has no pairs."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["length_difference", *FIELDS])
        for name, one in quality["accuracy_by_length_difference"].items():
            writer.writerow([name, *(one[field] if one else "" for field in FIELDS)])
