"""Plot: lengths of right and wrong completions, a panel a policy, and their counts as CSV."""

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from stages.reports import plot_style
from stages.reports.policy_samples import PolicySamples

MAX_BINS = 40


def draw(path: Path, policies: Mapping[str, PolicySamples]) -> None:
    """Stacked bars, shares of all completions of the policy."""
    longest = max(int(policy.tokens.max()) for policy in policies.values())
    width = -(-(longest + 1) // MAX_BINS)
    edges = np.arange(0, longest + width + 1, width) - 0.5
    with plot_style.applied():
        columns = min(3, len(policies))
        rows = -(-len(policies) // columns)
        figure = Figure(figsize=(2.6 * columns + 0.4, 2.1 * rows + 0.8))
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, (name, policy) in zip(grid.flat, policies.items(), strict=False):
            total = policy.tokens.size
            right, wrong = policy.tokens[policy.right], policy.tokens[~policy.right]
            axes.hist(
                [right, wrong],
                bins=list(edges),
                weights=[np.full(len(right), 1 / total), np.full(len(wrong), 1 / total)],
                stacked=True,
                color=[plot_style.BLUE, plot_style.RED],
                label=["right", "wrong"],
            )
            axes.set_title(name)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        for place, axes in enumerate(grid.flat):
            axes.set_visible(place < len(policies))
            if place + columns >= len(policies):
                axes.set_xlabel("tokens")
                axes.tick_params(labelbottom=True)
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        plot_style.save(figure, path)


def write(path: Path, policies: Mapping[str, PolicySamples]) -> None:
    """One row a policy and length: how many completions are right and wrong."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["policy", "tokens", "right", "wrong"])
        for name, policy in policies.items():
            for length in np.unique(policy.tokens):
                verdicts = policy.right[policy.tokens == length]
                writer.writerow([name, length, verdicts.sum(), (~verdicts).sum()])
