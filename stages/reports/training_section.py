"""Training runs, one after the other, in words and tables (Markdown)."""

from collections.abc import Mapping, Sequence

from stages.reports import markdown
from stages.reports.training_series import Series


def render(runs: Mapping[str, Mapping[str, Series]], images: Mapping[str, str]) -> str:
    """The section.

    Args:
        runs: for each entry that trained a policy (`train_grpo/grpo`), its quantities.
        images: for each, its plot, relative to the report.
    """
    parts = [
        "# Training, run by run",
        "Reinforcement learning: means over the rollouts of a step, which are on training "
        "problems; true accuracy is the answer checker's. A group is the completions of one "
        "problem in one step: its advantages come from the differences of its rewards, so a group "
        "whose rewards are all the same has no signal. The variance is the mean over groups, with "
        "ddof 1. Preference runs: the journal's metrics. Of long runs thin lines are single steps, "
        "thick ones moving averages.",
    ]
    if not runs:
        parts.append("This plan trains no policy by preferences or rewards.")
    for entry, quantities in runs.items():
        rows = [
            [name, _mean(series[: _tenth(series)]), _mean(series[-_tenth(series) :])]
            for name, series in quantities.items()
        ]
        num_steps = max(len(series) for series in quantities.values())
        header = ["quantity", "first tenth of the steps", "last tenth"]
        parts += [
            f"## {entry}",
            f"{num_steps} steps.",
            f"![Training curves of {entry}]({images[entry]})",
            markdown.table(header, rows),
        ]
    return "\n\n".join(parts) + "\n"


def _tenth(series: Series) -> int:
    return max(1, len(series) // 10)


def _mean(points: Sequence[tuple[int, float]]) -> str:
    return f"{round(sum(value for _, value in points) / len(points), 4) + 0.0:.4g}"
