"""Paired differences between policies, with what they can be believed (Markdown)."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.reports import markdown
from stages.reports.markdown import p_value, points
from stages.reports.policy_metrics import MAJORITY

Metrics = Mapping[str, Any]


def against_baseline(policies: Metrics, n: int) -> str:
    """Policies but the baseline: greedy, mean and majority, with Holm's p-values."""
    header = ["policy", "greedy", "p", "only it / only the baseline", "mean", "p", "detectable"]
    header += [f"majority@{n}", "p"]
    rows = []
    for name, one in policies.items():
        if "versus_baseline" not in one:
            continue
        greedy, mean, majority = (
            one["versus_baseline"][key] for key in ("greedy_accuracy", "mean_accuracy", MAJORITY)
        )
        rows.append(
            [
                name,
                points(greedy),
                p_value(greedy["p_holm"]),
                f"{greedy['only_this']} / {greedy['only_baseline']}",
                points(mean),
                p_value(mean["p_holm"]),
                f"{100 * mean['detectable']:.1f}",
                points(majority),
                p_value(majority["p_holm"]),
            ]
        )
    return markdown.table(header, rows)


def format_or_skill(policies: Metrics) -> str:
    """What each policy gained in mean accuracy under the three readings of an answer."""
    columns = {"mean_strict": "strict", "mean_accuracy": "the checker", "mean_lenient": "lenient"}
    return markdown.table(
        ["policy", *columns.values()],
        (
            [name, *(points(one["versus_baseline"][column]) for column in columns)]
            for name, one in policies.items()
            if "versus_baseline" in one
        ),
    )


def each_against_each(pairs: Sequence[Metrics]) -> str:
    """Every two policies: the difference of mean accuracy, and what it says."""
    return markdown.table(
        ["first minus second", "mean", "p", "verdict"],
        (
            [f"{one['first']} - {one['second']}", points(one), p_value(one["p_holm"]), verdict(one)]
            for one in pairs
        ),
    )


def verdict(pair: Metrics) -> str:
    """Which of two policies is better, where the interval and the adjusted p-value agree."""
    if pair["p_holm"] >= 0.05 or pair["low"] <= 0 <= pair["high"]:
        return "not resolved"
    return f"{pair['first'] if pair['difference'] > 0 else pair['second']} is better"
