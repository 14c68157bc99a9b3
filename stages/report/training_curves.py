"""How each policy's training went: quantities by step, of every seed."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.ticker import MaxNLocator

from stages.report import plots

SHOWN = {
    "reward/mean": "reward",
    "reward/accuracy": "accuracy on training problems",
    "loss/nll": "loss, nats/token",
    "loss/preference": "preference loss",
    "margin/accuracy": "pairs ordered rightly",
    "logprobs/chosen": "log-probability of the chosen",
    "kl/k1": "KL to reference, nats/token",
    "entropy": "entropy, nats/token",
    "length/mean": "tokens a completion",
    "length/truncated": "share cut at the limit",
}
"""Metric -> what it is called; those that a policy's history has are drawn, in this order."""
COLUMNS = 3
Curves = dict[str, Float[np.ndarray, "seed step"]]
"""Metric -> its values; of seeds of unequal length as many steps as all have."""


def read(training: Path, seeds: Sequence[int]) -> Curves:
    """The curves of one policy, from `<training>/<seed>/history.jsonl`."""
    histories = [_history(training / str(seed) / "history.jsonl") for seed in seeds]
    num_steps = min(len(rows) for rows in histories)
    return {
        name: np.array([[row[name] for row in rows[:num_steps]] for rows in histories])
        for name in SHOWN
        if num_steps and all(name in row for rows in histories for row in rows[:num_steps])
    }


def _history(path: Path) -> list[Mapping[str, float]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [json.loads(line)["metrics"] for line in file]


def draw(path: Path, curves: Curves, colour: str) -> None:
    """A panel a metric: a thin line a seed, and their mean."""
    num_rows = -(-len(curves) // COLUMNS)
    with plots.figure(path, width=8.4, height=0.2 + 1.9 * num_rows) as figure:
        panels = figure.subplots(num_rows, COLUMNS, squeeze=False).ravel()
        for panel, (name, values) in zip(panels, curves.items(), strict=False):
            for one in values:
                panel.plot(one, color=colour, linewidth=0.7, alpha=0.4)
            panel.plot(values.mean(axis=0), color=colour, linewidth=1.6)
            panel.set_title(SHOWN[name])
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        for panel in panels[len(curves) :]:
            panel.set_visible(False)
        for panel in panels[max(0, len(curves) - COLUMNS) : len(curves)]:
            panel.set_xlabel("step")


def write(path: Path, curves: Mapping[str, Curves], seeds: Sequence[int]) -> None:
    """All numbers drawn: a row a policy, seed, metric and step."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["policy", "seed", "metric", "step", "value"])
        for policy, metrics in curves.items():
            for metric, values in metrics.items():
                for seed, of_seed in zip(seeds, values, strict=True):
                    for step, value in enumerate(of_seed):
                        writer.writerow([policy, seed, metric, step, f"{value:.6g}"])
