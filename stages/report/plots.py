"""Plots of the report, with their style and numbers: accuracies, and training step by step.

Their bytes depend on the numbers alone.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stages.report import verdict
from stages.report.comparison import UNTESTED
from stages.report.estimates import (
    BEST_OF,
    BEST_TEMPERATURE,
    MAJORITY,
    MEAN,
    PASS,
    WEIGHTED,
    Results,
)
from stages.report.stage_metrics import History

# Okabe and Ito's palette: distinct with any kind of colour vision.
GREY, BLUE, RED, GREEN, PINK = "#555555", "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"

_ORDER = (GREY, BLUE, RED, GREEN, PINK, ORANGE, SKY, BLACK)
_STYLE: Any = {
    "font.size": 10, "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.facecolor": "none", "axes.grid": True, "grid.color": "#E6E6E6", "axes.axisbelow": True,
    "legend.frameon": False,
    "savefig.dpi": 140, "figure.constrained_layout.use": True,
    "svg.fonttype": "none",  # words as text: smaller, and read aloud
    "svg.hashsalt": "posttrain",  # or ids in the file would be random
}  # fmt: skip
_LINES = (BLACK, GREY, *_ORDER[1:-1])
MARKERS, DASHES = "osD^vPX*", ("-", "--", "-.", ":")
"""Of the lines in one panel, so that they differ without colour, too."""
DARK = {
    "#ffffff": "#16181c", "#e6e6e6": "#33383f", "#000000": "#e6e8eb", GREY: "#b4b8be",
    BLUE: "#5cb3ee", RED: "#ff8f4d", GREEN: "#35c795", PINK: "#e5a3c6", ORANGE: "#f0b43c",
    SKY: "#8fd0f5",
}  # fmt: skip
"""Colour of a plot -> the one in its place where the reader prefers a dark page."""
_NO_METADATA: Any = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}
COLUMNS = 3
SHOWN = {
    "reward/mean": "reward", "reward/accuracy": "accuracy on training problems",
    "loss/nll": "loss, nats/token", "loss/forward_kl": "KL from the teacher, nats/token",
    "loss/preference": "preference loss",
    "margin/accuracy": "pairs ordered rightly", "logprobs/chosen": "log-probability of the chosen",
    "kl/k1": "KL to reference, nats/token", "entropy": "entropy, nats/token",
    "length/mean": "tokens a completion", "length/truncated": "share cut at the limit",
}  # fmt: skip
"""Metric -> what it is called; those that a policy's history has are drawn, in this order."""
Curves = dict[str, Float[np.ndarray, "seed step"]]
"""Metric of `SHOWN` -> its values; of seeds of unequal length as many steps as all have."""


@contextmanager
def save_figure(path: Path, *, width: float, height: float) -> Iterator[Figure]:
    """A figure of so many inches in this style, whatever the user's matplotlibrc says.

    At the end it is saved, as SVG or PNG, without a date or the library's version. An SVG follows
    the reader's preference for light or dark.
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        new_figure = Figure(figsize=(width, height))
        yield new_figure
        new_figure.savefig(path, metadata=_NO_METADATA[path.suffix])
    if path.suffix == ".svg":
        rules = "".join(
            f'[style*="{kind}: {light.lower()}"]{{{kind}:{dark}!important}}'
            for light, dark in DARK.items()
            for kind in ("fill", "stroke")
        )
        # What is black has no fill of its own.
        style = f"svg{{fill:{DARK['#000000']}}}{rules}"
        dark_style = f"@media (prefers-color-scheme: dark){{{style}}}"
        text = path.read_text(encoding="utf-8")
        # To a hundredth of a point: half as large.
        rounded = re.sub(r' d="[^"]*"', lambda line: re.sub(r"(\.\d\d)\d+", r"\1", line[0]), text)
        path.write_text(rounded.replace("</style>", f"{dark_style}</style>", 1), encoding="utf-8")


def assign_colours(policies: Iterable[str]) -> dict[str, str]:
    """The colour of each policy in every plot, by its place; the baseline, the first, is grey."""
    return {name: _ORDER[place % len(_ORDER)] for place, name in enumerate(policies)}


def draw_accuracy(folder: Path, metrics: Mapping[str, Any]) -> None:
    """Plot of each policy's accuracy as sampled, above, and at its best temperature, below."""
    policies, seeds = metrics["policies"], metrics["seeds"]
    sampled, of_policies = metrics["temperatures"]["sampled"], metrics["temperatures"]["policies"]
    chosen = {name: of.get("best", sampled) for name, of in of_policies.items()}
    numbers = ("value", "low", "high")
    columns = ("best_temperature", *(f"at_best_{name}" for name in numbers))
    header = ["policy", "mean_accuracy", "low", "high", *(f"seed_{seed}" for seed in seeds)]
    rows = (
        [name, *(of[MEAN][number] for number in numbers), *of[MEAN]["seeds"].values(),
         chosen[name], *(of[BEST_TEMPERATURE][number] for number in numbers)]
        for name, of in policies.items()
    )  # fmt: skip
    _write_csv(folder / "accuracy.csv", [*header, *columns], rows)
    over = "seeds and problems" if len(seeds) > 1 else "problems (one seed)"
    height = 1.55 + 0.66 * len(policies)
    # No wider: on a phone it is shown whole, and its words are still large enough.
    with save_figure(folder / "accuracy.svg", width=5.2, height=height) as plot:
        axes = plot.subplots()
        for place, (name, colour) in enumerate(assign_colours(policies).items()):
            _draw_estimate(axes, policies[name][MEAN], place - 0.16, colour, above=True)
            _draw_estimate(axes, policies[name][BEST_TEMPERATURE], place + 0.16, colour)
        for measure, style in ((MEAN, ":"), (BEST_TEMPERATURE, "--")):
            before = 100 * policies[metrics["baseline"]][measure]["value"]
            axes.axvline(before, color=GREY, linewidth=0.8, linestyle=style, zorder=0)
        places = [place + side for place in range(len(policies)) for side in (-0.16, 0.16)]
        labels = [
            label
            for name in policies
            for label in (f"{name}, at {sampled:g}", f"at {chosen[name]:g}")
        ]
        axes.set_yticks(places, labels)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(policies) - 0.4, -0.7)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(
            f"accuracy of an answer on {metrics['num_problems']:,} test problems, %,\n"
            f"at temperature {sampled:g} and at the best on dev problems\n"
            f"(0: greedy); lines: {100 * metrics['confidence']:g} % intervals over\n"
            f"{over}; dots: seeds",
            fontsize=9,
        )


def _draw_estimate(
    axes: Axes, estimate: Mapping[str, Any], place: float, colour: str, *, above: bool = False
) -> None:
    """An interval, its value and a dot for each seed; filled above, hollow below."""
    value, low, high = (100 * estimate[key] for key in ("value", "low", "high"))
    axes.plot([low, high], [place, place], color=colour, linewidth=2.2)
    axes.plot(value, place, "|", markersize=13, markeredgewidth=2.6, color=colour)
    of_seeds = [100 * seed for seed in estimate["seeds"].values()]
    face, edge = (colour, "white") if above else ("white", colour)
    axes.plot(of_seeds, [place] * len(of_seeds), "o", markersize=6, markerfacecolor=face,
              markeredgecolor=edge, markeredgewidth=0.9, zorder=3)  # fmt: skip
    axes.annotate(f"{value:.1f}", (value, place), xytext=(0, 7 if above else -15),
                  textcoords="offset points", ha="center", fontsize=9,
                  bbox={"color": "white", "pad": 0.4})  # fmt: skip


def draw_accuracy_by_n(folder: Path, results: Results) -> None:
    """One panel per policy: pass@n, majority, best-of-n; in the numbers also votes by weight."""
    rows = (
        [policy, method, n, f"{table.mean():.6f}"]
        for policy, tables in results.tables.items()
        for name, table in tables.items()
        for method, _, n in [name.rpartition("/")]
        if method.partition("/")[0] in (PASS, MAJORITY, BEST_OF, WEIGHTED)
    )
    _write_csv(folder / "accuracy_by_n.csv", ["policy", "method", "n", "accuracy"], rows)
    num_columns = min(COLUMNS, len(results.tables))
    num_rows = -(-len(results.tables) // num_columns)
    labels = {PASS: "any right (pass@n)", MAJORITY: "majority"}
    path = folder / "accuracy_by_n.svg"
    with save_figure(path, width=8.4, height=0.9 + 2.3 * num_rows) as plot:
        panels = plot.subplots(num_rows, num_columns, squeeze=False, sharey=True).ravel()
        for place, (panel, policy) in enumerate(zip(panels, results.tables, strict=False)):
            rewards = [name for name in results.methods(policy, BEST_OF) if name not in UNTESTED]
            methods = [PASS, MAJORITY, *(f"{BEST_OF}/{reward}" for reward in rewards)]
            for at, method in enumerate(methods):
                numbers = results.ks if method == PASS else results.ns
                tables = [results.tables[policy][f"{method}/{n}"] for n in numbers]
                panel.plot(
                    numbers, [100 * table.mean() for table in tables],
                    color=_LINES[at % len(_LINES)], marker=MARKERS[at % len(MARKERS)],
                    linestyle=DASHES[at % len(DASHES)], markersize=4.5,
                    label=labels.get(method) or verdict.name_choice(method, "n"),
                )  # fmt: skip
            panel.set_xscale("log", base=2)
            panel.set_xticks(results.ks, [str(k) for k in results.ks])
            panel.set_title(policy)
            panel.set_ylabel("accuracy, %" if place % num_columns == 0 else "")
            panel.set_xlabel("samples" if place + num_columns >= len(results.tables) else "")
        for panel in panels[len(results.tables) :]:
            panel.set_visible(False)
        handles, labels = panels[0].get_legend_handles_labels()
        plot.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def select_curves(history: History) -> Curves:
    """The curves of one policy."""
    steps = list(zip(*history, strict=False))
    return {
        name: np.array(
            [[metrics[name] for metrics in of_step] for of_step in zip(*steps, strict=True)]
        )
        for name in SHOWN
        if steps and all(name in metrics for of_seeds in steps for metrics in of_seeds)
    }


def draw_training(folder: Path, curves: Mapping[str, Curves], results: Results) -> None:
    """One plot per policy, one panel per metric: a thin line per seed, and their mean."""
    rows = (
        [policy, seed, metric, step, f"{value:.6g}"]
        for policy, metrics in curves.items()
        for metric, values in metrics.items()
        for seed, of_seed in zip(results.seeds, values, strict=True)
        for step, value in enumerate(of_seed)
    )
    _write_csv(folder / "training.csv", ["policy", "seed", "metric", "step", "value"], rows)
    for policy, colour in assign_colours({**results.tables, **curves}).items():
        if policy in curves:
            path = folder / f"training-{policy}.svg"
            _draw_curves(path, curves[policy], results.seeds, colour)


def _draw_curves(path: Path, curves: Curves, seeds: Sequence[int], colour: str) -> None:
    num_rows = -(-len(curves) // COLUMNS)
    with save_figure(path, width=8.4, height=0.5 + 1.9 * num_rows) as plot:
        panels = plot.subplots(num_rows, COLUMNS, squeeze=False).ravel()
        for panel, (name, values) in zip(panels, curves.items(), strict=False):
            for at, (seed, of_seed) in enumerate(zip(seeds, values, strict=True)):
                panel.plot(of_seed, color=colour, linewidth=0.7, alpha=0.45, markevery=[-1],
                           marker=MARKERS[at % len(MARKERS)], markersize=4,
                           label=f"seed {seed}")  # fmt: skip
            panel.plot(values.mean(axis=0), color=colour, linewidth=1.6, label="mean")
            panel.set_title(SHOWN[name])
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        for panel in panels[len(curves) :]:
            panel.set_visible(False)
        for panel in panels[max(0, len(curves) - COLUMNS) : len(curves)]:
            panel.set_xlabel("step")
        handles, labels = panels[0].get_legend_handles_labels()
        plot.legend(
            handles, labels, loc="outside lower center", ncols=min(6, len(labels)), fontsize=9
        )
