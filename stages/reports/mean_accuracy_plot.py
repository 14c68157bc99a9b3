"""Plot: accuracy of one sample of each policy, with confidence intervals."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from stages.reports import plot_style

QUANTITIES = {"mean_accuracy": ("o", 7, -0.17), "greedy_accuracy": ("D", 5, 0.17)}
"""Quantity -> marker, its size, and its place in the policy's row."""


def draw(path: Path, policies: Mapping[str, Mapping[str, Any]], colours: Mapping[str, str]) -> None:
    """A row a policy: accuracy of one random sample (and of greedy decoding), with intervals."""
    with plot_style.applied():
        figure = Figure(figsize=(7.0, 0.55 * len(policies) + 1.2))
        axes = figure.subplots()
        for row, (name, policy) in enumerate(policies.items()):
            colour = colours[name]
            for quantity, (marker, size, offset) in QUANTITIES.items():
                entry = policy[quantity]
                value = entry["value"]
                axes.errorbar(
                    value,
                    row + offset,
                    xerr=[[max(0.0, value - entry["low"])], [max(0.0, entry["high"] - value)]],
                    fmt=marker,
                    color=colour,
                    markerfacecolor=colour if marker == "o" else "white",
                    markersize=size,
                    linewidth=size / 4,
                    capsize=3,
                )
                axes.annotate(
                    f"{value:.1%}",
                    (entry["high"], row + offset),
                    xytext=(7, 0),
                    textcoords="offset points",
                    va="center",
                    color=colour,
                    fontweight="bold" if marker == "o" else "normal",
                )
        axes.set_yticks(range(len(policies)), list(policies))
        axes.set_ylim(len(policies) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.12)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xlabel("test accuracy:  ● one random sample   ◇ greedy")
        axes.set_title("Accuracy of the policies, with confidence intervals over problems")
        plot_style.save(figure, path)
