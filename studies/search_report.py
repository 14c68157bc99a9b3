"""Search against sampling at equal compute: the report (Markdown) and the plot."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter, ScalarFormatter

from stages.report import markdown, plots
from studies import study as studies
from studies.equal_compute import Unit

WAYS = {"best": "best-scored", "weighted": "weighted vote", "majority": "majority"}
"""Ways to choose an answer among a search's solutions, with their labels."""
Way = Literal["best", "weighted", "majority"]
MARKERS = {"best": "D", "weighted": "s", "majority": "^"}
TITLES = {
    "flops": "At what the search cost as it was run",
    "flops_once": "At what it would cost with a prefix cache in both models",
    "tokens": "At as many generated tokens, whatever was read and scored",
}
PANELS: tuple[tuple[Unit, str], ...] = (
    ("flops", "floating-point operations a problem"),
    ("tokens", "generated tokens a problem"),
)


def render_report(compared: Mapping[str, Any], *, image: str, way: str, num_seeds: int) -> str:
    """The report on `equal_compute.compare_at_equal_compute`; `image`: path of the plot."""
    searches = compared["searches"]
    return studies.render(
        "search", image=image, labels=WAYS, titles=TITLES, searches=searches,
        curves=[*compared["curves"]],
        ways=list(dict.fromkeys(way for search in searches.values() for way in search["accuracy"])),
        verdict=studies.explain_no_verdict(num_seeds) or describe_result(compared, way=way),
    )  # fmt: skip


def describe_result(compared: Mapping[str, Any], *, way: str) -> str:
    """Sentences on the gain of each search over each curve, at its own cost.

    `way`: how an answer is taken of its solutions, chosen before the numbers are seen.
    """
    sentences = []
    for name, search in compared["searches"].items():
        names_by_outcome: dict[str, list[str]] = {
            "beats": [],
            "cannot be told from": [],
            "is worse than": [],
        }
        for method, entry in search["versus"]["flops"].items():
            if entry is not None:
                gain = entry["ways"][way]["interpolated"]
                word = "cannot be told from"
                if gain["low"] > 0 or gain["high"] < 0:
                    word = "beats" if gain["low"] > 0 else "is worse than"
                names_by_outcome[word].append(f"{method} ({markdown.format_points(gain)})")
        parts = [f"{word} {', '.join(names)}" for word, names in names_by_outcome.items() if names]
        what = "; it ".join(parts) or "costs less than one sample by any of the curves"
        sentences.append(f"`{name}`, {WAYS[way]}, at its cost {what}.")
    return " ".join(sentences)


def draw_equal_compute(path: Path, compared: Mapping[str, Any]) -> None:
    """A PNG of `equal_compute.compare_at_equal_compute`: against operations, and against tokens.

    On the left a filled point stands at what the search cost as it was run, the hollow one beside
    it at what it would cost with a prefix cache.
    """
    colours = plots.assign_colours([*compared["curves"], *compared["searches"]])
    with plots.save_figure(path, width=9.2, height=4.6) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (unit, label) in zip(panels, PANELS, strict=True):
            for name, curve in compared["curves"].items():
                _curve(axes, name, curve, unit, colours[name])
            for name, search in compared["searches"].items():
                _point(axes, name, search, unit, colours[name])
            axes.set_xscale("log", base=10 if unit == "flops" else 2)
            if unit == "tokens":
                axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.set_xlabel(label)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        panels[0].set_ylabel("test accuracy")
        figure.suptitle("Accuracy against compute, and against generated tokens")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)


def _curve(axes: Axes, name: str, curve: Mapping[str, Any], unit: Unit, colour: str) -> None:
    entries = [curve[n] for n in sorted(curve, key=int)]
    costs, values, lows, highs = (
        [entry[key] for entry in entries] for key in (unit, "value", "low", "high")
    )
    axes.plot(costs, values, "-o", color=colour, label=name, markersize=3)
    axes.fill_between(costs, lows, highs, color=colour, alpha=0.1, linewidth=0)
    style: Any = {"textcoords": "offset points", "fontsize": 7, "color": colour}
    axes.annotate(f"n = {max(curve, key=int)}", (costs[-1], values[-1]), xytext=(4, 0), **style)


def _point(axes: Axes, name: str, search: Mapping[str, Any], unit: Unit, colour: str) -> None:
    for way, entry in search["accuracy"].items():
        value, marker = entry["value"], MARKERS[way]
        axes.errorbar(
            search[unit], value, yerr=[[value - entry["low"]], [entry["high"] - value]], fmt=marker,
            color=colour, markersize=7, capsize=2, elinewidth=0.8, label=f"{name}, {WAYS[way]}",
        )  # fmt: skip
        if unit == "flops":
            axes.plot(search["flops_once"], value, marker, color=colour, mfc="none", ms=7)
