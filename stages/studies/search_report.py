"""Search against sampling at equal compute: the report (Markdown) and the plot."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter, ScalarFormatter

from stages.report import plots
from stages.studies import markdown
from stages.studies.equal_compute import Unit

WAYS = {"best": "best-scored", "weighted": "weighted vote", "majority": "majority"}
"""How one answer is taken of a search's solutions, and how it is called."""
Way = Literal["best", "weighted", "majority"]
TITLES = {
    "flops": "At what the search cost as it was run",
    "flops_once": "At what it would cost with a prefix cache in both models",
    "tokens": "At as many generated tokens, whatever was read and scored",
}


def render(compared: Mapping[str, Any], *, image: str, way: str) -> str:
    """The report.

    Args:
        compared: of `equal_compute.compare`.
        image: path of the plot, as the report names it.
        way: see `verdict`.
    """
    parts = [
        "# Search at equal compute",
        verdict(compared, way=way),
        (
            "Accuracy of a search over steps against that of choosing among n whole samples, where "
            "both cost the same. A cost is 2 P floating-point operations for each token that a "
            "model of P parameters (without embeddings and heads) reads or generates: the "
            "policy's prompts and prefixes, every sampled token, those of dropped candidates too, "
            "and all that the process model reads. A search reads its prefixes again at each "
            "depth; a prefix cache would save that. Tokens are those that the policy generated."
        ),
        f"![Accuracy against compute]({image})",
        _searches(compared),
    ]
    for budget, title in TITLES.items():
        parts.append(f"{title}, points gained by the search, paired by seed and problem:")
        parts.append(_versus(compared, budget))
    return "\n\n".join(parts) + "\n"


def verdict(compared: Mapping[str, Any], *, way: str) -> str:
    """In words: what each search gains over each curve, at its own cost.

    Args:
        compared: of `equal_compute.compare`.
        way: how an answer is taken of a search's solutions, chosen before the numbers are seen.
    """
    sentences = []
    for name, search in compared["searches"].items():
        found: dict[str, list[str]] = {
            word: [] for word in ("beats", "cannot be told from", "is worse than")
        }
        for other, entry in search["versus"]["flops"].items():
            if entry is not None:
                gain = entry["ways"][way]["interpolated"]
                word = "cannot be told from"
                if gain["low"] > 0 or gain["high"] < 0:
                    word = "beats" if gain["low"] > 0 else "is worse than"
                found[word].append(f"{other} ({markdown.points(gain)})")
        parts = [f"{word} {', '.join(others)}" for word, others in found.items() if others]
        what = "; it ".join(parts) or "costs less than one sample by any of the curves"
        sentences.append(f"`{name}`, {WAYS[way]}, at its cost {what}.")
    return " ".join(sentences)


def _searches(compared: Mapping[str, Any]) -> str:
    searches = compared["searches"].items()
    ways = list(dict.fromkeys(way for _, one in searches for way in one["accuracy"]))
    rows = [
        [
            f"`{name}`",
            f"{one['flops'] / 1e9:.3g}",
            f"{one['flops_once'] / 1e9:.3g}",
            f"{one['tokens']:.1f}",
            *(markdown.percent(one["accuracy"].get(way)) for way in ways),
        ]
        for name, one in searches
    ]
    header = [
        "search",
        "GFLOP a problem",
        "with a cache",
        "generated tokens",
        *(WAYS[way] for way in ways),
    ]
    return markdown.table(header, rows)


def _versus(compared: Mapping[str, Any], budget: str) -> str:
    curves = list(compared["curves"])
    rows = []
    for name, search in compared["searches"].items():
        for way in search["accuracy"]:
            cells = []
            for curve in curves:
                entry = search["versus"][budget][curve]
                cells.append("costs less than n = 1" if entry is None else _cell(entry, way))
            rows.append([f"`{name}`, {WAYS[way]}", *cells])
    return markdown.table(["search", *(f"against {curve}" for curve in curves)], rows)


def _cell(entry: Mapping[str, Any], way: str) -> str:
    gain = markdown.points(entry["ways"][way]["interpolated"])
    if entry["at_end"]:
        return f"{gain} at n = {entry['n']}, the largest"
    return f"{gain} just above n = {entry['n']}"


MARKERS = dict(zip(WAYS, ("D", "s", "^"), strict=True))


PANELS: tuple[tuple[Unit, str], ...] = (
    ("flops", "floating-point operations a problem"),
    ("tokens", "generated tokens a problem"),
)


def draw(path: Path, compared: Mapping[str, Any]) -> None:
    """A PNG of what `equal_compute.compare` found: against operations, and against tokens.

    On the left a filled point stands at what the search cost as it was run, the hollow one beside
    it at what it would cost with a prefix cache.
    """
    names = [*compared["curves"], *compared["searches"]]
    colours = plots.colours(names)
    with plots.figure(path, width=9.2, height=4.6) as figure:
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
    costs = [entry[unit] for entry in entries]
    axes.plot(
        costs, [one["value"] for one in entries], "-o", color=colour, label=name, markersize=3
    )
    lows, highs = ([entry[bound] for entry in entries] for bound in ("low", "high"))
    axes.fill_between(costs, lows, highs, color=colour, alpha=0.1, linewidth=0)
    last = max(curve, key=int)
    axes.annotate(
        f"n = {last}",
        (curve[last][unit], curve[last]["value"]),
        textcoords="offset points",
        xytext=(4, 0),
        fontsize=7,
        color=colour,
    )


def _point(axes: Axes, name: str, search: Mapping[str, Any], unit: Unit, colour: str) -> None:
    for way, entry in search["accuracy"].items():
        error = [[entry["value"] - entry["low"]], [entry["high"] - entry["value"]]]
        axes.errorbar(
            search[unit],
            entry["value"],
            yerr=error,
            fmt=MARKERS[way],
            color=colour,
            markersize=7,
            capsize=2,
            elinewidth=0.8,
            label=f"{name}, {WAYS[way]}",
        )
        if unit == "flops":
            axes.plot(
                search["flops_once"], entry["value"], MARKERS[way], color=colour, mfc="none", ms=7
            )
