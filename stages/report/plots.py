"""Plots of the report, with their style and numbers: accuracies, gains, training curves.

Their bytes depend only on the numbers.
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

from stages.config import read_yaml
from stages.report import verdict
from stages.report.estimates import (
    BEST_OF,
    BEST_TEMPERATURE,
    MAJORITY,
    MEAN,
    PASS,
    Results,
)
from stages.report.stage_metrics import History
from stages.rewards.pool_scores import MEAN_LOGPROB, WITHOUT_A_REWARD

# Okabe and Ito's palette: distinct with any kind of colour vision.
GREY, BLUE, RED, GREEN, PINK = "#555555", "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"

_ORDER = (GREY, BLUE, RED, GREEN, PINK, ORANGE, SKY, BLACK)
_SETTINGS: Any = read_yaml(Path(__file__).with_suffix(".yaml"))
_LINES = (BLACK, GREY, *_ORDER[1:-1])
MARKERS, DASHES = "osD^vPX*", ("-", "--", "-.", ":")
"""Styles of the lines in one panel, so that they also differ without colour."""
DARK = "svg{filter:invert(1) hue-rotate(180deg)}"
"""Style for readers who prefer a dark page: light and dark are swapped, and hues stay."""
_NO_METADATA: Any = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}
COLUMNS = 3
WIDTH = 5.2
"""Inches of the plots at the head of the page: whole on a phone, with text still large enough."""
MAX_POINTS = 150
"""Largest number of points in a training curve."""
SHOWN: dict[str, str] = _SETTINGS["curves"]
"""Metric -> its title; those in a policy's history are drawn, in this order."""
Curves = dict[str, Float[np.ndarray, "seed step"]]
"""Metric of `SHOWN` -> its values, NaN after the last step of a seed."""


@contextmanager
def save_figure(path: Path, *, width: float, height: float) -> Iterator[Figure]:
    """A figure in this style, `width` by `height` inches, whatever the user's matplotlibrc says.

    At the end it is saved, as SVG or PNG, without a date or the library's version. An SVG follows
    the reader's preference for light or dark.
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS["style"])
        new_figure = Figure(figsize=(width, height))
        yield new_figure
        new_figure.savefig(path, metadata=_NO_METADATA[path.suffix])
    if path.suffix == ".svg":
        dark_style = f"@media (prefers-color-scheme: dark){{{DARK}}}"
        text = path.read_text(encoding="utf-8")
        # Coordinates rounded to a hundredth of a point: half as many bytes.
        rounded = re.sub(r' d="[^"]*"', lambda line: re.sub(r"(\.\d\d)\d+", r"\1", line[0]), text)
        path.write_text(rounded.replace("</style>", f"{dark_style}</style>", 1), encoding="utf-8")


def assign_colours(policies: Iterable[str]) -> dict[str, str]:
    """Colour of each policy in every plot, by its position; the first, the baseline, is grey."""
    return {name: _ORDER[place % len(_ORDER)] for place, name in enumerate(policies)}


@contextmanager
def _open_rows(path: Path, num_policies: int) -> Iterator[tuple[Figure, Axes]]:
    """A plot with one row per policy; the two plots at the head have equal heights."""
    with save_figure(path, width=WIDTH, height=1.1 + 0.56 * num_policies) as plot:
        axes = plot.subplots()
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.xaxis.label.set_fontsize(9)
        yield plot, axes


def draw_accuracy(folder: Path, metrics: Mapping[str, Any]) -> None:
    """Plot each policy's accuracy as sampled, and at its best temperature if one was chosen."""
    policies = metrics["policies"]
    sampled, of_policies = metrics["temperatures"]["sampled"], metrics["temperatures"]["policies"]
    numbers = ("value", "low", "high")
    rows = ([name, *(of[MEAN][number] for number in numbers)] for name, of in policies.items())
    _write_csv(folder / "accuracy.csv", ["policy", MEAN, "low", "high"], rows)
    has_best = BEST_TEMPERATURE in policies[metrics["baseline"]]
    above, below = (-0.19, 0.19) if has_best else (0.0, 0.0)
    with _open_rows(folder / "accuracy.svg", len(policies)) as (_, axes):
        labels = dict[float, str]()
        for place, (name, colour) in enumerate(assign_colours(policies).items()):
            _draw_estimate(axes, policies[name][MEAN], place + above, colour, above=True)
            labels[place + above] = f"{name}, at {sampled:g}"
            if has_best:
                _draw_estimate(axes, policies[name][BEST_TEMPERATURE], place + below, colour)
                labels[place + below] = f"at {of_policies[name]['best']:g}"
        for measure, style in ((MEAN, ":"), (BEST_TEMPERATURE, "--")):
            if before := policies[metrics["baseline"]].get(measure):
                axes.axvline(100 * before["value"], color=GREY, linewidth=0.8, linestyle=style,
                             zorder=0)  # fmt: skip
        axes.set_yticks([*labels], [*labels.values()])
        axes.set_ylim(len(policies) - 0.5, -0.6)
        at_best = "and at the best on dev problems (0: greedy)\n" if has_best else ""
        over = "seeds and problems" if len(metrics["seeds"]) > 1 else "problems (one seed)"
        lines = f"lines: {100 * metrics['confidence']:g} % intervals over {over}; dots: seeds"
        axes.set_xlabel(
            f"accuracy on {metrics['num_problems']:,} test problems, %, at temperature "
            f"{sampled:g}\n{at_best}{lines}"
        )


def draw_parts(folder: Path, metrics: Mapping[str, Any]) -> None:
    """Plot the parts of each gain as sampled, as bars end to end, each above its interval.

    A part that is not significant is hollow, and has no number. Without parts there is no plot.
    """
    if not metrics["parts"]:
        return
    names = [*metrics["gains"][MEAN]]
    with _open_rows(folder / "parts.svg", len(metrics["policies"])) as (plot, axes):
        ends = {name: {True: 0.0, False: 0.0} for name in names}
        for at, (part, colour) in enumerate(
            zip(metrics["parts"], (SKY, ORANGE, GREY), strict=True)
        ):
            axes.fill([], [], color=colour, label=part)
            for place, (name, of) in enumerate(metrics["parts"][part].items()):
                value, low, high = (100 * of[number] for number in ("value", "low", "high"))
                start = ends[name][value > 0]
                ends[name][value > 0] += value
                axes.barh(place, value, left=start, height=0.4, edgecolor=colour, linewidth=1.4,
                          facecolor=colour if of["significant"] else "white", zorder=2)  # fmt: skip
                axes.plot([start + low, start + high], [place + 0.27 + 0.09 * at] * 2, "|-",
                          color=colour, linewidth=1.6, markersize=4)  # fmt: skip
                if of["significant"]:
                    axes.annotate(f"{value:+.1f}", (start + value / 2, place), fontsize=9,
                                  color="white" if colour == GREY else "black",
                                  ha="center", va="center", zorder=3)  # fmt: skip
        axes.axvline(0.0, color=GREY, linewidth=0.8, zorder=1)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.4)
        axes.set_xlabel(
            f"parts of the gain over {metrics['baseline']}, points, at temperature "
            f"{metrics['temperatures']['sampled']:g}\n"
            f"lines: {100 * metrics['confidence']:g} % intervals; hollow: undecided"
        )
        plot.legend(loc="outside upper center", ncols=3, fontsize=9)


def _draw_estimate(
    axes: Axes, estimate: Mapping[str, Any], place: float, colour: str, *, above: bool = False
) -> None:
    """Draw an interval, its value and one dot per seed; filled above, hollow below."""
    value, low, high = (100 * estimate[key] for key in ("value", "low", "high"))
    axes.plot([low, high], [place, place], color=colour, linewidth=2.2)
    axes.plot(value, place, "|", markersize=13, markeredgewidth=2.6, color=colour)
    of_seeds = [100 * seed for seed in estimate["seeds"].values()]
    face, edge = (colour, "white") if above else ("white", colour)
    axes.plot(of_seeds, [place] * len(of_seeds), "o", markersize=6, markerfacecolor=face,
              markeredgecolor=edge, markeredgewidth=0.9, zorder=3)  # fmt: skip
    axes.annotate(f"{value:.1f}", (1.0, place), xycoords=("axes fraction", "data"), xytext=(4, 0),
                  textcoords="offset points", va="center", fontsize=9)  # fmt: skip


def draw_accuracy_by_n(folder: Path, results: Results) -> None:
    """Plot pass@n, majority and best-of-n, one panel per policy."""
    labels = {PASS: "any right (pass@n)", MAJORITY: "majority"}
    path = folder / "accuracy_by_n.svg"
    with _open_panels(path, list(results.tables), "samples", height=2.3, sharey=True) as panels:
        panels[0].set_ylabel("accuracy, %")
        for panel, policy in zip(panels, results.tables, strict=True):
            rewards = [
                name
                for name in results.methods(policy, BEST_OF)
                if name == MEAN_LOGPROB or name not in WITHOUT_A_REWARD
            ]
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


@contextmanager
def _open_panels(
    path: Path, titles: Sequence[str], xlabel: str, *, height: float, sharey: bool = False
) -> Iterator[list[Axes]]:
    """A plot with one panel per title, `height` inches high, and the legend of the first."""
    num_rows = -(-len(titles) // COLUMNS)
    with save_figure(path, width=8.4, height=0.7 + height * num_rows) as plot:
        panels: list[Axes] = list(
            plot.subplots(num_rows, COLUMNS, squeeze=False, sharey=sharey).flat
        )
        yield panels[: len(titles)]
        for panel, title in zip(panels, titles, strict=False):
            panel.set_title(title)
        for panel in panels[len(titles) :]:
            panel.set_visible(False)
        for panel in panels[max(0, len(titles) - COLUMNS) : len(titles)]:
            panel.set_xlabel(xlabel)
        handles, labels = panels[0].get_legend_handles_labels()
        plot.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def select_curves(history: History) -> Curves:
    """The curves of one policy."""
    longest = max(map(len, history), default=0)
    return {
        name: np.array(
            [
                [metrics[name] for metrics in of_seed] + [np.nan] * (longest - len(of_seed))
                for of_seed in history
            ]
        )
        for name in SHOWN
        if history
        and all(history)
        and all(name in metrics for of_seed in history for metrics in of_seed)
    }


def draw_training(folder: Path, curves: Mapping[str, Curves], results: Results) -> None:
    """Plot every policy's first curve, and for each policy all its metrics, one per panel."""
    rows = (
        [policy, seed, metric, step, f"{value:.6g}"]
        for policy, metrics in curves.items()
        for metric, values in metrics.items()
        for seed, of_seed in zip(results.seeds, values, strict=True)
        for step, value in enumerate(of_seed)
        if not np.isnan(value)
    )
    _write_csv(folder / "training.csv", ["policy", "seed", "metric", "step", "value"], rows)
    colours = assign_colours({**results.tables, **curves})
    panels = {
        f"training-{policy}": [
            (SHOWN[name], values, colours[policy]) for name, values in metrics.items()
        ]
        for policy, metrics in curves.items()
    }
    firsts = [
        (f"{policy}: {title}", values, colour)
        for policy, ((title, values, colour), *_) in zip(curves, panels.values(), strict=True)
    ]
    for name, of_plot in (panels | {"training": firsts} if curves else {}).items():
        _draw_curves(folder / f"{name}.svg", of_plot, results.seeds)


def _draw_curves(
    path: Path, curves: Sequence[tuple[str, Float[np.ndarray, "seed step"], str]],
    seeds: Sequence[int],
) -> None:  # fmt: skip
    """Draw panels (title, values, colour): a thin line per seed, and their mean where all have one.

    More than `MAX_POINTS` steps are averaged over spans of equal length; the remainder is left out
    at the start. If values fall below a tenth of the first, their axis is logarithmic.
    """
    titles = [title for title, _, _ in curves]
    with _open_panels(path, titles, "step", height=1.9) as panels:
        for panel, (_, of_steps, colour) in zip(panels, curves, strict=True):
            span = -(-of_steps.shape[1] // MAX_POINTS)
            *lines, mean = (
                _average_spans(line, span) for line in (*of_steps, of_steps.mean(axis=0))
            )
            for at, (seed, line) in enumerate(zip(seeds, lines, strict=True)):
                panel.plot(*line, color=colour, linewidth=0.7, alpha=0.45, markevery=[-1],
                           marker=MARKERS[at % len(MARKERS)], markersize=4,
                           label=f"seed {seed}")  # fmt: skip
            panel.plot(*mean, color=colour, linewidth=1.6, label="mean")
            drawn = [values for _, values in lines if values.size]
            if 0.0 < 10.0 * min(map(np.min, drawn)) < max(values[0] for values in drawn):
                panel.set_yscale("log")
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _average_spans(
    line: Float[np.ndarray, " step"], span: int
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """Mean step and mean value of each `span` steps, up to the first NaN."""
    number = int(np.isfinite(line).sum())
    steps = np.arange(number % span, number).reshape(-1, span)
    return steps.mean(axis=-1), line[steps].mean(axis=-1)
