"""Plot and table: how right estimated step labels are, against what they cost."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from stages.reports import plot_style
from stages.reports.step_label_summary import tokens_by_size

PANELS = {
    "precision": "Labelled wrong: share that is",
    "recall": "Wrong steps: share labelled so",
    "agreement": "First error: share agreed on",
}
RATIOS = (*PANELS, "error_accuracy", "correct_accuracy")
COLUMNS = (
    "rule", "k", "tokens_per_label",
    *(f"{name}{bound}" for name in RATIOS for bound in ("", "_low", "_high")), "f1",
)  # fmt: skip


def write(folder: Path, metrics: Mapping[str, Any]) -> None:
    """Make `folder` with `audit.csv` and, where anything was audited, `audit.png`.

    Args:
        folder: where to.
        metrics: what `step_label_summary.summarise` found.
    """
    audit, tokens_per_label = metrics["audit"], tokens_by_size(metrics)
    folder.mkdir()
    with (folder / "audit.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=COLUMNS, lineterminator="\n")
        writer.writeheader()
        for rule, by_k in audit.items():
            for k, found in by_k.items():
                cost = {"rule": rule, "k": k, "tokens_per_label": tokens_per_label[k]}
                writer.writerow(cost | _flat(found))
    if audit:
        _draw(folder / "audit.png", audit, tokens_per_label)


def _flat(found: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"f1": found["f1"]}
    for name in RATIOS:
        if found[name] is not None:
            row |= {name: found[name]["value"]}
            row |= {f"{name}_{bound}": found[name][bound] for bound in ("low", "high")}
    return row


def _draw(
    path: Path,
    audit: Mapping[str, Mapping[str, Mapping[str, Any]]],
    tokens_per_label: Mapping[str, float],
) -> None:
    with plot_style.applied():
        figure = Figure(figsize=(4.0 * len(PANELS), 3.8))
        grid = figure.subplots(1, len(PANELS), sharey=True)
        for axes, (name, title) in zip(grid, PANELS.items(), strict=True):
            _panel(axes, name, title, audit, tokens_per_label)
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.suptitle("Estimated step labels against the truth")
        plot_style.save(figure, path)


def _panel(
    axes: Axes,
    name: str,
    title: str,
    audit: Mapping[str, Mapping[str, Mapping[str, Any]]],
    tokens_per_label: Mapping[str, float],
) -> None:
    for rule, colour in plot_style.colours(audit).items():
        entries = {int(k): found[name] for k, found in audit[rule].items() if found[name]}
        values = [entry["value"] for entry in entries.values()]
        axes.plot(list(entries), values, color=colour, label=rule, marker="o", markersize=4)
        lows, highs = ([entry[bound] for entry in entries.values()] for bound in ("low", "high"))
        axes.fill_between(list(entries), lows, highs, color=colour, alpha=0.13, linewidth=0)
    ks = [int(k) for k in tokens_per_label]
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, [f"{k}\n{tokens:.0f}" for k, tokens in tokens_per_label.items()])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title(title)
    axes.set_xlabel("completions of a prefix\ngenerated tokens a label")
