"""Files of step labels, by the `format.kind` in presets.yaml."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from stages.records.problems import BadRow
from stages.records.steps import RawSteps
from stages.sources import raw_rows, row_fields
from stages.sources.steps import math_aps, math_shepherd, prm800k, processbench

Format = Annotated[
    prm800k.Config | math_shepherd.Config | math_aps.Config | processbench.Config,
    Field(discriminator="kind"),
]


def solutions(path: Path, form: Format) -> Iterator[list[RawSteps] | BadRow]:
    """The solutions of each row of the file, or the reason why it has none."""
    for line, row in raw_rows.read(path):
        if isinstance(row, BadRow):
            yield row
        else:
            build = partial(_solutions, form=form, line=line)
            yield row_fields.built_or_bad_row(row, build, file=path.name, line=line)


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
