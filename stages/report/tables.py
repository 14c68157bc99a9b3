"""The tables of the report: what is a number in metrics.json, as text in a pandas frame."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from stages.report import quality, verdict
from stages.report.estimates import GREEDY, MAJORITY, MEAN, PASS

Metrics = Mapping[str, Any]
NOTHING = "–"
MADE_FOR = "made for it"
"""A column of words, which is wrapped."""


def accuracy(metrics: Metrics) -> pd.DataFrame:
    """A row a policy: accuracies, each seed's, and the gain over the baseline."""
    n, baseline = metrics["n"], metrics["baseline"]
    rows = []
    for name, one in metrics["policies"].items():
        gain = metrics["gains"][MEAN].get(name)
        rows.append(
            {
                "policy": name,
                "accuracy, %": interval(one[MEAN]),
                **of_seeds(metrics, one[MEAN]),
                "greedy, %": value(one[GREEDY]),
                f"majority of {n}, %": value(one[f"{MAJORITY}/{n}"]),
                f"over {baseline}, points": NOTHING if gain is None else points(gain),
                **tested(metrics, gain),
            }
        )
    return pd.DataFrame(rows)


def gains(metrics: Metrics, measure: str) -> pd.DataFrame:
    """A row a policy: one measure, and its gain over the baseline's."""
    return pd.DataFrame(
        [
            {
                "policy": name,
                "%": interval(metrics["policies"][name][measure]),
                f"over {metrics['baseline']}, points": points(gain),
                **of_seeds(metrics, gain),
                **tested(metrics, gain),
                **detectable(metrics, gain),
            }
            for name, gain in metrics["gains"][measure].items()
        ]
    )


def pairs(metrics: Metrics) -> pd.DataFrame:
    """A row a pair of policies besides the baseline."""
    return pd.DataFrame(
        [
            {
                "difference": name.replace(" - ", " − "),
                "points": points(one),
                **of_seeds(metrics, one),
                **tested(metrics, one),
                **detectable(metrics, one),
            }
            for name, one in metrics["pairs"].items()
        ]
    )


def selection(metrics: Metrics, policy: str) -> pd.DataFrame:
    """A row a way to choose among n samples of a policy; first what needs no reward."""
    n, found = metrics["n"], metrics["selection"][policy]
    one = metrics["policies"][policy]
    header = f"over the majority of {n}, points"
    plain = {
        "one sample": one[MEAN],
        f"majority of {n}": one[f"{MAJORITY}/{n}"],
        f"any of {n} is right (pass@{n})": one[f"{PASS}/{n}"],
    }
    rows: list[dict[str, str]] = [
        {"": label, "accuracy, %": interval(level)} for label, level in plain.items()
    ]
    tested_first = sorted(found["accuracy"], key=lambda way: way not in found["over_majority"])
    for way in tested_first:
        level = found["accuracy"][way]
        difference = found["over_majority"].get(way)
        row = {"": verdict.name(way, n), "accuracy, %": interval(level)}
        if difference is not None:
            row |= {header: points(difference)} | of_seeds(metrics, difference)
            row |= tested(metrics, difference)
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def scoring(metrics: Metrics, policy: str) -> pd.DataFrame:
    """A row a reward: how well it orders a policy's samples, and what it has over the format."""
    found, n = metrics["selection"][policy], metrics["n"]
    rows = []
    for name, area in found["auc"].items():
        row = {"reward": name, "AUC in a problem": f"{area['value']:.3f}"}
        in_format = found["auc_in_format"].get(name)
        row["AUC in the format"] = NOTHING if in_format is None else f"{in_format['value']:.3f}"
        for way, label in (("best_of", f"best of {n}"), ("weighted", "weighted vote")):
            over = found["over_format"].get(f"{way}/{name}")
            row[f"{label} over format, points"] = points(over) if over else NOTHING
        rows.append(row)
    return pd.DataFrame(rows)


def made(metrics: Metrics, table: str) -> pd.DataFrame:
    """A row a source of labels, or a reward; means over seeds."""
    measures, found = quality.MEASURES[table], metrics["quality"].get(table, {})
    measured = [label for label in measures if any(label in row for row in found.values())]
    return pd.DataFrame(
        [
            {"": name}
            | {
                label: written(row[label]["value"], measures[label][0]) if label in row else NOTHING
                for label in measured
            }
            for name, row in found.items()
        ]
    )


def completions(metrics: Metrics) -> pd.DataFrame:
    """A row a policy: what its samples look like, and accuracy read strictly and leniently."""
    columns = {
        "mean_strict": "accuracy, strict, %",
        "mean_lenient": "accuracy, lenient, %",
        "readable_rate": "answer readable, %",
        "format_rate": "format kept, %",
        "truncation_rate": "cut at the limit, %",
    }
    return pd.DataFrame(
        [
            {"policy": name}
            | {label: value(one[key]) for key, label in columns.items()}
            | {"tokens": f"{one['mean_tokens']['value']:.1f}"}
            for name, one in metrics["policies"].items()
        ]
    )


def difficulty(metrics: Metrics) -> pd.DataFrame:
    """A row a policy, a column a fifth of the problems, the hardest first."""
    groups = metrics["difficulty"]
    names = {0: "hardest fifth, %", len(groups) - 1: "easiest fifth, %"}
    return pd.DataFrame(
        [
            {"policy": name}
            | {
                names.get(at, f"{at + 1}, %"): interval(group["policies"][name])
                for at, group in enumerate(groups)
            }
            for name in metrics["policies"]
        ]
    )


def costs(metrics: Metrics) -> pd.DataFrame:
    """A row a policy: what was made for it, and what that cost a seed."""
    found = metrics["costs"]["policies"]
    return pd.DataFrame(
        [
            {"policy": name, MADE_FOR: ", ".join(found[name]["rows"])} | spent(found[name])
            for name in metrics["policies"]
        ]
    )


def rows(metrics: Metrics) -> pd.DataFrame:
    """A row of each table that costs tokens or operations."""
    found = metrics["costs"]["rows"].items()
    return pd.DataFrame([{"row": name} | spent(one) for name, one in found if any(one.values())])


def spent(cost: Metrics) -> dict[str, str]:
    """Tokens and operations of one seed."""
    return {
        "tokens generated": f"{cost['generated_tokens']:,.0f}",
        "tokens trained on": f"{cost['trained_tokens']:,.0f}",
        "GFLOPs": f"{cost['flops'] / 1e9:,.0f}",
    }


def of_seeds(metrics: Metrics, one: Metrics) -> dict[str, str]:
    """Each seed's value, where there are several."""
    if len(metrics["seeds"]) == 1:
        return {}
    listed = ", ".join(f"{100 * value:.1f}" for value in one["seeds"].values())
    return {"each seed": listed}


def tested(metrics: Metrics, difference: Metrics | None) -> dict[str, str]:
    """The adjusted p-value; nothing is tested over one seed."""
    if len(metrics["seeds"]) == 1:
        return {}
    return {"p (Holm)": "" if difference is None else p_value(difference["p_holm"])}


def detectable(metrics: Metrics, difference: Metrics) -> dict[str, str]:
    """The smallest difference that would have been found."""
    if len(metrics["seeds"]) == 1:
        return {}
    return {"detectable, points": f"{100 * difference['detectable']:.1f}"}


def value(one: Metrics) -> str:
    """A share in per cent."""
    return f"{100 * one['value']:.1f}"


def interval(one: Metrics) -> str:
    """A share in per cent, with its interval."""
    return f"{value(one)} [{100 * one['low']:.1f}, {100 * one['high']:.1f}]"


def points(one: Metrics) -> str:
    """A difference of shares in percentage points, with its interval."""
    return f"{100 * one['value']:+.1f} [{100 * one['low']:+.1f}, {100 * one['high']:+.1f}]"


def p_value(p: float) -> str:
    """Three decimals; what is smaller is said to be."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def written(number: float, kind: quality.Kind) -> str:
    """A count, a share in per cent, or a number."""
    match kind:
        case "count":
            return f"{number:,.0f}"
        case "percent":
            return f"{100 * number:.1f} %"
        case "number":
            return f"{number:.3f}"
