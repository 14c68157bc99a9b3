"""Whether choosing among samples by a score beats their majority vote, in words (Markdown)."""

from collections.abc import Iterator, Mapping
from typing import Any

from stages.reports import markdown
from stages.reports.accuracy_tables import largest_n, scorers
from stages.reports.markdown import percent, points

Metrics = Mapping[str, Any]
LEARNED = {
    "reward_model": "a reward model",
    "ensemble": "the ensemble of reward models",
    "outcome": "the outcome reward model",
    "process": "the process reward model",
    "mean_logprob": "the policy's own mean log-prob",
}
WAYS = {"best_of": "the sample that scores best", "weighted": "the vote weighted by scores"}


def sentences(evaluations: Metrics, baseline: str) -> str:
    """One answer a scorer and way, for the baseline's samples."""
    n, one = largest_n(evaluations), evaluations[baseline]
    lines = []
    for scorer, words in LEARNED.items():
        for way, what in WAYS.items():
            against = one["minus_majority"].get(f"{way}/{scorer}")
            if against is not None:
                lines.append(
                    f"- **{words}**: {what} is {outcome(against[n])} the majority of {n} "
                    f"({points(against[n])} points)."
                )
    return "\n".join(lines) or "- nothing was scored."


def why(evaluations: Metrics, baseline: str) -> str:
    """How much of it a check of the format would do: each scorer and way against that."""
    n, one = largest_n(evaluations), evaluations[baseline]
    at, against = one["accuracy_at"], one["minus_format"]
    lines = [
        f"Any of the {n} that keeps the format of the demonstrations is right "
        f"{percent(at['best_of/format'][n])} of the time, the majority of those "
        f"{percent(at['weighted/format'][n])}: that much takes no model. Above it, in points:",
        markdown.table(
            ["scorer", *WAYS.values()],
            (
                [words, *(_point(against.get(f"{way}/{scorer}"), n) for way in WAYS)]
                for scorer, words in LEARNED.items()
                if f"best_of/{scorer}" in against
            ),
        ),
    ]
    return "\n\n".join(lines)


def table(evaluations: Metrics, way: str) -> str:
    """Policies x scorers: points above the majority of as many samples."""
    n, columns = largest_n(evaluations), scorers(evaluations, way)
    return markdown.table(
        ["policy", *columns],
        (
            [name, *_cells(one["minus_majority"], way, columns, n)]
            for name, one in evaluations.items()
        ),
    )


def outcome(interval: Metrics) -> str:
    """What an interval of a difference says."""
    if interval["low"] > 0:
        return "better than"
    if interval["high"] < 0:
        return "worse than"
    return "not resolved from"


def _cells(minus: Metrics, way: str, columns: list[str], n: str) -> Iterator[str]:
    for scorer in columns:
        yield _point(minus.get(f"{way}/{scorer}"), n)


def _point(of_n: Metrics | None, n: str) -> str:
    return "none" if of_n is None else points(of_n[n])
