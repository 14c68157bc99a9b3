"""Counts of labelled solutions, and the records of those left out."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from stages.records.problems import BadRow
from stages.records.steps import RawSteps, StepLabels
from stages.sources.quarantine import bad_row


def bad_rows(file: str, left_out: Iterable[tuple[RawSteps, str]]) -> list[BadRow]:
    """The records, for the quarantine file."""
    return [bad_row(file, raw.line, reason, "\n".join(raw.steps)) for raw, reason in left_out]


def describe(rows: Sequence[StepLabels]) -> dict[str, dict[str, int | float]]:
    """Solutions by whether a label marks an error, and their labels.

    Raises:
        ValueError: there is no solution.
    """
    if not rows:
        raise ValueError(
            "no solution is left: expected labelled ones of at most max_tokens. Use another file, "
            "or raise max_tokens (and the model's positions)."
        )
    labels = [label for row in rows for label in row.labels if label is not None]
    erroneous = [any(label is not None and label < 0.5 for label in row.labels) for row in rows]
    return {
        "solutions": {
            "all": len(rows),
            "problems": len({row.prompt for row in rows}),
            "erroneous": sum(erroneous),
            "without_error": len(rows) - sum(erroneous),
            "mean_steps": round(fmean(len(row.steps) for row in rows), 4),
            "mean_tokens": round(fmean(sum(map(len, row.step_ids)) for row in rows), 2),
        },
        "labels": {
            "steps": sum(len(row.steps) for row in rows),
            "labelled": len(labels),
            "wrong": sum(label < 0.5 for label in labels),
            "mean": round(fmean(labels), 6),
        },
    }
