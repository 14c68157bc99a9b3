"""Files of step labels, by their `format.kind`: read, and counted."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from pydantic import Field

from stages.records.problems import BadRow
from stages.records.steps import RawSteps, StepLabels
from stages.seeding import derive
from stages.sources import raw_rows
from stages.sources.quarantine import bad_row
from stages.sources.splitting import normalise
from stages.sources.steps import math_aps, math_shepherd, prm800k, processbench

Format = Annotated[
    prm800k.Config | math_shepherd.Config | math_aps.Config | processbench.Config,
    Field(discriminator="kind"),
]


def solutions(path: Path, form: Format) -> Iterator[list[RawSteps] | BadRow]:
    """The solutions of each row of the file, or the reason why it has none."""
    for line, row in raw_rows.read_rows(path):
        if isinstance(row, BadRow):
            yield row
        else:
            build = partial(_solutions, form=form, line=line)
            yield raw_rows.built_or_bad_row(row, build, file=path.name, line=line)


def _solutions(fields: Mapping[str, Any], *, form: Format, line: int) -> list[RawSteps]:
    match form:
        case prm800k.Config():
            return prm800k.solutions(fields, form, line)
        case math_shepherd.Config():
            return math_shepherd.solutions(fields, form, line)
        case math_aps.Config():
            return math_aps.solutions(fields, form, line)
        case processbench.Config():
            return processbench.solutions(fields, line)


def split(rows: Sequence[StepLabels], heldout_share: float) -> dict[str, list[StepLabels]]:
    """Solutions to learn from (`train`) and to test on (`heldout`), in their order.

    A solution's side is a function of its prompt alone, so that no problem is on both.

    Raises:
        ValueError: a side is empty that should not be.
    """
    sides: dict[str, list[StepLabels]] = {"train": [], "heldout": []}
    for row in rows:
        position = derive(0, "steps_people", normalise(row.prompt)) / 2**63
        sides["heldout" if position < heldout_share else "train"].append(row)
    empty = [side for side, own in sides.items() if not own]
    if empty and 0 < heldout_share < 1:
        raise ValueError(
            f"{len(rows)} solutions leave {' and '.join(empty)} empty. Use a file with more "
            f"problems that fit (max_tokens), or change heldout_share."
        )
    return sides


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
