"""Plot: how a scorer scores right and wrong completions, a panel a policy."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from stages.reports import plot_style
from stages.reports.policy_samples import PolicySamples

NUM_BINS = 36


def draw(
    path: Path,
    shifts: Mapping[str, Float[np.ndarray, "problem sample"]],
    policies: Mapping[str, PolicySamples],
) -> None:
    """The density of the shifts of right and of wrong completions, each with area 1.

    The outermost half per cent of either side is left out of the picture.
    """
    pooled = np.concatenate([shift.ravel() for shift in shifts.values()])
    low, high = np.quantile(pooled, [0.005, 0.995])
    edges = np.linspace(low, high if high > low else low + 1, NUM_BINS + 1)
    with plot_style.applied():
        columns = min(3, len(shifts))
        rows = -(-len(shifts) // columns)
        figure = Figure(figsize=(max(4.4, 2.6 * columns + 0.4), 2.0 * rows + 0.9))
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, (name, shift) in zip(grid.flat, shifts.items(), strict=False):
            right = policies[name].right
            for kind, mask, colour in (
                ("right", right, plot_style.BLUE),
                ("wrong", ~right, plot_style.RED),
            ):
                inside = shift[mask & (shift >= edges[0]) & (shift <= edges[-1])]
                counts, _ = np.histogram(inside, bins=edges)
                density = counts / max(1, counts.sum()) / (edges[1] - edges[0])
                axes.stairs(density, edges, color=colour, fill=True, alpha=0.25)
                axes.stairs(density, edges, color=colour, linewidth=1.4, label=kind)
            axes.axvline(0, color=plot_style.GREY, linewidth=0.8, linestyle=":")
            axes.set_title(name)
            axes.set_yticks([])
        for place, axes in enumerate(grid.flat):
            axes.set_visible(place < len(shifts))
            if place + columns >= len(shifts):
                axes.tick_params(labelbottom=True)
        figure.supxlabel("score minus the baseline's mean score of the problem", fontsize=10)
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
        plot_style.save(figure, path)
