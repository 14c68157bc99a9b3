"""Search against sampling at equal compute, as a report (Markdown)."""

from collections.abc import Mapping
from typing import Any, Literal

from stages.reports import markdown

WAYS = {"best": "best-scored", "weighted": "weighted vote", "majority": "majority"}
"""How one answer is taken of a search's solutions, and how it is called."""
Way = Literal["best", "weighted", "majority"]
BUDGETS = {
    "flops": "At what the search cost as it was run",
    "flops_once": "At what it would cost with a prefix cache in both models",
    "tokens": "At as many generated tokens, whatever was read and scored",
}


def render(compared: Mapping[str, Any], *, image: str, way: str) -> str:
    """The report; without a search it says that there is none.

    Args:
        compared: of `equal_compute.compare`.
        image: path of the plot, as the report names it.
        way: see `verdict`.
    """
    if not compared["searches"]:
        what = "No search of the baseline's policy on the test problems is in this plan."
        return f"# Search at equal compute\n\n{what}\n\n![Nothing to compare]({image})\n"
    parts = [
        "# Search at equal compute",
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
    for budget, title in BUDGETS.items():
        parts.append(f"{title}, percentage points gained by the search, paired by problem:")
        parts.append(_versus(compared, budget))
    parts.append(verdict(compared, way=way))
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
