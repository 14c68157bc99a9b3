"""The comparison of policies in words and tables (Markdown)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.reports import markdown, stage_times
from stages.reports.markdown import percent, points

Metrics = Mapping[str, Any]


def render(comparison: Metrics, evaluations: Metrics, *, images: Sequence[str]) -> str:
    """The report.

    Args:
        comparison: the content of `data/compare_policies/metrics.json`.
        evaluations: for each policy, the content of its `data/evaluate_policy` metrics.
        images: paths of the plots, relative to the report.
    """
    parts = [
        "# Policies compared",
        f"{comparison['num_problems']} test problems; {comparison['num_samples']} sampled "
        f"completions of each and a greedy one. In brackets {comparison['confidence']:.0%} "
        f"confidence intervals over problems (bootstrap; for greedy decoding Wilson's).",
        accuracy_table(evaluations),
        "Mean: one random sample. Majority: the most frequent answer of n samples. Best-of: the "
        "sample that its scorer scores highest: a reward model, or the policy itself by its mean "
        "log-prob of a token. Pass: any of n is right, which no one "
        "can choose without the gold answer. All are expectations over random draws from one pool.",
        f"## Against {comparison['baseline']}",
        f"Percentage points above {comparison['baseline']} on the same problems. **Bold**: the "
        "interval excludes zero.",
        difference_table(comparison["policies"], largest_n(evaluations)),
        "## Does reranking help?",
        reranking(evaluations),
        "## What the completions look like",
        shape_table(evaluations),
        "## What it cost",
        f"Beyond what {comparison['baseline']} cost: every stage that a policy was trained or "
        "sampled by, with the pools that its pairs or demonstrations came from, its reward model "
        "and the policies that it started from. Seconds are those of the machine that executed "
        "the stages.",
        cost_table(comparison["costs"]),
        "## How long each stage took",
        stage_times.table(comparison["stage_seconds"]),
        stage_times.LEGEND,
        "## Plots",
        "\n\n".join(f"![{Path(path).stem.replace('_', ' ')}]({path})" for path in images),
    ]
    return "\n\n".join(parts) + "\n"


def largest_n(evaluations: Metrics) -> str:
    """The largest number of samples that majority, best-of and pass are estimated for."""
    return max(next(iter(evaluations.values()))["best_of"], key=int)


def accuracy_table(evaluations: Metrics) -> str:
    """Policies x ways to get one answer."""
    n = largest_n(evaluations)
    return markdown.table(
        ["policy", "greedy", "mean", f"majority@{n}", f"best-of-{n}", f"pass@{n}"],
        (
            [
                name,
                percent(one["greedy_accuracy"]),
                percent(one["mean_accuracy"]),
                *(percent(one[table][n]) for table in ("majority_at", "best_of", "pass_at")),
            ]
            for name, one in evaluations.items()
        ),
    )


def difference_table(policies: Metrics, n: str) -> str:
    """Policies but the baseline x paired differences from it."""
    tables = {
        "versus_baseline_greedy_accuracy": "greedy",
        "versus_baseline": "mean",
        "versus_baseline_majority_at": f"majority@{n}",
        "versus_baseline_best_of": f"best-of-{n}",
        "versus_baseline_pass_at": f"pass@{n}",
    }
    return markdown.table(
        ["policy", *tables.values()],
        (
            [name, *(points(one[table]) for table in tables)]
            for name, one in policies.items()
            if "versus_baseline" in one
        ),
    )


def reranking(evaluations: Metrics) -> str:
    """For each policy, whether best-of-n beats one random sample and the majority vote."""
    n = largest_n(evaluations)
    sentences = []
    for name, one in evaluations.items():
        mean, vote = one["best_of_minus_mean"][n], one["best_of_minus_majority"][n]
        sentences.append(
            f"- **{name}**: the best of {n} is {_verdict(mean)} one random sample "
            f"({points(mean)} points), and {_verdict(vote)} the majority of {n} "
            f"({points(vote)} points)."
        )
    return "\n".join(sentences)


def shape_table(evaluations: Metrics) -> str:
    """Policies x properties of their sampled completions."""
    header = ["policy", "answer readable", "format kept", "cut at the limit", "mean tokens"]
    return markdown.table(
        header,
        (
            [
                name,
                *(percent(one[rate]) for rate in ("readable_rate", "format_rate")),
                percent(one["truncation_rate"]),
                "{value:.1f} [{low:.1f}, {high:.1f}]".format(**one["mean_tokens"]),
            ]
            for name, one in evaluations.items()
        ),
    )


def cost_table(costs: Metrics) -> str:
    """Policies x tokens and seconds."""
    return markdown.table(
        ["policy and its stages", "tokens generated", "tokens trained", "seconds"],
        (
            [
                f"{name}: {', '.join(cost['stages'])}",
                f"{cost['generated_tokens']:,}",
                f"{cost['trained_tokens']:,}",
                f"{cost['seconds']:,.1f}",
            ]
            for name, cost in costs.items()
        ),
    )


def _verdict(interval: Metrics) -> str:
    if interval["low"] > 0:
        return "better than"
    if interval["high"] < 0:
        return "worse than"
    return "not resolved from"
