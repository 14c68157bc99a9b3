"""Lengths of completions, in words and tables (Markdown)."""

from collections.abc import Mapping
from typing import Any

from stages.reports import markdown
from stages.reports.markdown import number, percent


def render(lengths: Mapping[str, Any], *, confidence: float) -> str:
    """The section; `lengths` is what `lengths.measure` found."""
    policies: Mapping[str, Any] = lengths["policies"]
    quantiles = ["5\u00a0%", "25\u00a0%", "median", "75\u00a0%", "95\u00a0%"]
    header = ["policy", "mean tokens", *quantiles, "cut at the limit", "right is longer"]
    rows = [
        [
            name,
            "{value:.1f} [{low:.1f}, {high:.1f}]".format(**one["mean_tokens"]),
            *(f"{quantile:.0f}" for quantile in one["quantiles"]),
            percent(one["cut"]),
            number(one["right_is_longer"]),
        ]
        for name, one in policies.items()
    ]
    spans = [f"{low} to {high}" if low < high else f"{low}" for low, high in lengths["buckets"]]
    accuracy = [
        [name, *(_accuracy(bucket) for bucket in one["buckets"])] for name, one in policies.items()
    ]
    parts = [
        "# Lengths",
        f"Generated tokens of the sampled completions. In brackets {confidence:.0%} intervals over "
        f"problems; the quantiles are of all completions. Right is longer: how often a right "
        f"completion is longer than a wrong one of the same problem, ties half; 0.5 where length "
        f"says nothing.",
        markdown.table(header, rows),
        "![Lengths of right and wrong completions of each policy](plots/lengths.png)",
        "## Accuracy by length",
        "Accuracy of the completions of each length in tokens (a mean over the problems that have "
        "one), and in parentheses the share of the policy's completions that are so long. Harder "
        "problems need longer answers: only the column *right is longer* above compares within a "
        "problem.",
        markdown.table(["policy", *spans], accuracy),
    ]
    return "\n\n".join(parts) + "\n"


def _accuracy(bucket: Mapping[str, Any]) -> str:
    if bucket["accuracy"] is None:
        return "none"
    return f"{percent(bucket['accuracy'])} ({bucket['share']:.0%})"
