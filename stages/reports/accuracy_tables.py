"""Policies x ways to get an answer, with intervals (Markdown)."""

from collections.abc import Mapping
from typing import Any

from stages.reports import markdown
from stages.reports.markdown import percent
from stages.reports.policy_metrics import MAJORITY

Metrics = Mapping[str, Any]
READINGS = {
    "greedy_strict": "greedy, strict",
    "greedy_accuracy": "greedy",
    "greedy_lenient": "greedy, lenient",
    "mean_strict": "mean, strict",
    "mean_accuracy": "mean",
    "mean_lenient": "mean, lenient",
}


def largest_n(evaluations: Metrics) -> str:
    """The largest number of samples that votes, best-of and pass are estimated for."""
    return max(next(iter(evaluations.values()))["accuracy_at"][MAJORITY], key=int)


def scorers(evaluations: Metrics, way: str) -> list[str]:
    """What chooses (`way` best_of) or weighs (weighted) for any of the policies."""
    found = dict.fromkeys(
        method.partition("/")[2]
        for one in evaluations.values()
        for method in one["accuracy_at"]
        if method.startswith(f"{way}/")
    )
    return list(found)


def without_scores(evaluations: Metrics) -> str:
    """What needs no scorer."""
    n = largest_n(evaluations)
    return markdown.table(
        ["policy", "greedy", "mean", f"majority@{n}", f"pass@{n}"],
        (
            [
                name,
                percent(one["greedy_accuracy"]),
                percent(one["mean_accuracy"]),
                *(percent(one["accuracy_at"][method][n]) for method in (MAJORITY, "pass")),
            ]
            for name, one in evaluations.items()
        ),
    )


def by_scorer(evaluations: Metrics, way: str) -> str:
    """Accuracy of `way` (best_of or weighted) at the largest n, a column a scorer."""
    n, columns = largest_n(evaluations), scorers(evaluations, way)
    return markdown.table(
        ["policy", *columns],
        (
            [name, *(percent(_at(one, f"{way}/{scorer}", n)) for scorer in columns)]
            for name, one in evaluations.items()
        ),
    )


def readings(evaluations: Metrics) -> str:
    """Greedy and mean accuracy under the three readings of an answer."""
    return markdown.table(
        ["policy", *READINGS.values()],
        (
            [name, *(percent(one[reading]) for reading in READINGS)]
            for name, one in evaluations.items()
        ),
    )


def shapes(evaluations: Metrics) -> str:
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


def _at(evaluation: Metrics, method: str, n: str) -> Metrics | None:
    found = evaluation["accuracy_at"].get(method)
    return None if found is None else found[n]
