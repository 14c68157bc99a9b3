"""Tables of the report: from numbers in metrics.json to rows of text.

A column is a title, a format of `FORMATS`, a mapping from the names of the rows, and the keys below
it: `("accuracy, %", "interval", metrics["policies"], "mean_accuracy")`. Most tables are declared in
their place in sections.md.j2; those here have columns or rows that depend on the run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stages.report import verdict
from stages.report.estimates import (
    BEST_OF,
    BEST_TEMPERATURE,
    MAJORITY,
    MEAN,
    PASS,
    WEIGHTED,
)
from stages.report.markdown import format_difference
from stages.report.stage_metrics import COSTS, MEASURES
from stages.report.verdict import Metrics

Rows = list[dict[str, str]]
"""Rows of a table. An empty cell is shown as a dash; a column of empty cells is left out."""
NOTHING = "–"
OUTCOMES = {
    "none": "as it should be: no difference", "different": "warning: a difference",
    "undecided": "undecided: the interval is too wide",
    "untested": "fewer than three seeds: untested",
}  # fmt: skip
"""Outcome of a control, which has nothing to learn -> its cell."""
Column = tuple[Any, ...]
"""Title, format, mapping by name, and keys below it."""


def tabulate(first: str, names: Iterable[str], columns: Sequence[Column]) -> Rows:
    """Table with one row per name, in a first column titled `first`; missing numbers are empty.

    The hyphen in the name of a difference, `grpo - sft`, becomes a minus sign.
    """
    rows: Rows = []
    for name in names:
        row = {first: name.replace(" - ", " − ")}
        for title, form, numbers, *keys in columns:
            value: Any = numbers
            for key in (name, *keys):
                value = None if value is None else value.get(key)
            row[title] = "" if value is None else FORMATS[form](value)
        rows.append(row)
    return rows


def tabulate_coverage(metrics: Metrics) -> Rows:
    """One row per policy: pass@k, and problems of a seed that only it or the baseline solves."""
    ks, counts = metrics["coverage"]["ks"], metrics["coverage"]["policies"]
    baseline = metrics["baseline"]
    gains = metrics["gains"][f"{PASS}/{ks[-1]}"]
    return tabulate(
        "policy", metrics["policies"],
        [
            *((f"pass@{k}, %", "share", metrics["policies"], f"{PASS}/{k}") for k in ks),
            (f"pass@{ks[-1]} over {baseline}, points", "points", gains),
            ("p (Holm)", "p", gains),
            ("solved by it alone", "mean", counts, "only_policy"),
            (f"by {baseline} alone", "mean", counts, "only_baseline"),
            ("by neither", "mean", counts, "neither"),
        ],
    )  # fmt: skip


def tabulate_temperatures(metrics: Metrics) -> Rows:
    """One row per policy, one column per temperature and split."""
    policies = metrics["temperatures"]["policies"]
    columns = [
        (f"{split}, {temperature}", "share", policies, split, temperature)
        for split in ("dev", "test")
        for temperature in policies[metrics["baseline"]][split]
    ]
    return tabulate("policy", policies, columns)


def tabulate_selection(metrics: Metrics, policy: str) -> Rows:
    """One row per way to choose among n samples; first those that need no reward."""
    n, choices, estimates = metrics["n"], metrics["selection"][policy], metrics["policies"][policy]
    levels = {"one sample": MEAN, "one sample at best temperature": BEST_TEMPERATURE,
              f"majority of {n}": f"{MAJORITY}/{n}",
              f"any of {n} is right (pass@{n})": f"{PASS}/{n}"}  # fmt: skip
    tested = choices["over_single"]
    ways = sorted(choices["accuracy"], key=lambda way: way not in tested)
    accuracy, over_single, over_majority = (
        {verdict.name_choice(way, n): by_way.get(way) for way in ways}
        for by_way in (choices["accuracy"], tested, choices["over_majority"])
    )
    accuracy = {
        label: estimates[measure] for label, measure in levels.items() if measure in estimates
    } | accuracy
    return tabulate(
        "choice", accuracy,
        [
            ("accuracy, %", "interval", accuracy),
            ("over single, points", "points", over_single),
            ("p (Holm) single", "p", over_single),
            ("over majority, points", "points", over_majority),
            ("p (Holm) majority", "p", over_majority),
        ],
    )  # fmt: skip


def tabulate_scoring(metrics: Metrics, policy: str) -> Rows:
    """One row per reward: its AUC among a problem's samples, and its gain over the format."""
    choices = metrics["selection"][policy]
    best, weighted = (
        {name: choices["over_format"].get(f"{way}/{name}") for name in choices["auc"]}
        for way in (BEST_OF, WEIGHTED)
    )
    return tabulate(
        "reward", choices["auc"],
        [
            ("AUC in a problem", "number", choices["auc"]),
            ("AUC in the format", "number", choices["auc_in_format"]),
            (f"best of {metrics['n']} over format, points", "points", best),
            ("weighted vote over format, points", "points", weighted),
        ],
    )  # fmt: skip


def tabulate_quality(metrics: Metrics, table: str) -> Rows:
    """One row per source of labels, or per reward; means over seeds."""
    quality = metrics["quality"].get(table, {})
    columns = [(label, kind, quality, label) for label, (kind, _) in MEASURES[table].items()]
    return tabulate("row", quality, columns)


def tabulate_difficulty(metrics: Metrics) -> Rows:
    """One row per policy, one column per fifth of the problems, the hardest first."""
    groups = metrics["difficulty"]
    names = {0: "hardest fifth, %", len(groups) - 1: "easiest fifth, %"}
    columns = [
        (names.get(at, f"{at + 1}, %"), "interval", group["policies"])
        for at, group in enumerate(groups)
    ]
    return tabulate("policy", metrics["policies"], columns) if groups else []


def tabulate_costs(first: str, costs: Metrics, names: Iterable[str]) -> Rows:
    """One row per name that costs tokens or operations; costs per seed."""
    return tabulate(
        first, [name for name in names if any(costs[name][kind] for kind in COSTS)],
        [
            ("made for it", "list", costs, "rows"),
            ("tokens generated", "count", costs, "generated_tokens"),
            ("tokens trained on", "count", costs, "trained_tokens"),
            ("GFLOPs", "billions", costs, "flops"),
        ],
    )  # fmt: skip


def list_seed_columns(differences: Metrics) -> list[Column]:
    """Columns that follow a difference: each seed, p-value, detectable difference."""
    return [
        ("each seed", "seeds", differences), ("p (Holm)", "p", differences),
        ("detectable, points", "detectable", differences),
    ]  # fmt: skip


def format_p(difference: Metrics) -> str:
    """p-value after Holm's adjustment, three digits; empty if the difference is not tested."""
    p = difference["p_holm"]
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:#.3g}"


def format_interval(
    estimate: Metrics, form: Callable[[float], str] = "{:.1f}".format, scale: float = 100.0
) -> str:
    """Number with its interval, times `scale`: by default a share in per cent."""
    value, low, high = (form(scale * estimate[key]) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def format_seeds(estimate: Metrics) -> str:
    """Share of each seed, in per cent; empty for a single seed, which is the mean."""
    seeds = estimate["seeds"].values()
    return ", ".join(f"{100 * seed:.1f}" for seed in seeds) if len(seeds) > 1 else ""


def format_detectable(difference: Metrics) -> str:
    """Detectable difference; empty above 1, which no difference of shares can be."""
    detectable = difference["detectable"]
    return "" if detectable is None or detectable > 1.0 else f"{100 * detectable:.1f}"


def format_endings(shares: Mapping[str, float]) -> str:
    """Endings of episodes with their shares."""
    return ", ".join(
        f"{ending.replace('_', ' ')} {100 * share:.1f} %" for ending, share in shares.items()
    )


FORMATS: dict[str, Callable[[Any], str]] = {
    "interval": format_interval, "points": lambda gain: format_interval(gain, format_difference),
    "score": lambda score: format_interval(score, "{:.3f}".format, 1.0), "p": format_p,
    "seeds": format_seeds, "detectable": format_detectable, "endings": format_endings,
    "share": lambda it: f"{100 * (it if isinstance(it, float) else it['value']):.1f}",
    "percent": lambda share: f"{100 * share['value']:.1f} %",
    "number": lambda estimate: f"{estimate['value']:.3f}",
    "ratio": lambda estimate: f"{estimate['value']:.2f}",
    "mean": lambda estimate: f"{estimate['value']:.1f}",
    "count": lambda it: f"{it if isinstance(it, int | float) else it['value']:,.0f}",
    "billions": lambda number: f"{number / 1e9:,.0f}", "plain": "{:g}".format, "text": str,
    "list": ", ".join, "outcome": OUTCOMES.__getitem__,
}  # fmt: skip
"""Name of a format -> function from a number, or an estimate of metrics.json, to text."""
