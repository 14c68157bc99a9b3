"""Files of people's preferences, by their `format` in presets.yaml."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from stages.records.preferences import RawPreference
from stages.records.problems import BadRow
from stages.sources import raw_rows, row_fields
from stages.sources.preferences import chat, text, transcript
from stages.sources.preferences.columns import Columns, better_first, check_answers

Format = Literal["text", "chat", "transcript"]
_PAIR = {"text": text.pair, "chat": chat.pair, "transcript": transcript.pair}


def pairs(path: Path, form: Format, columns: Columns) -> Iterator[RawPreference | BadRow]:
    """Each row of the file as a pair, or with the reason why it is none."""
    for line, row in raw_rows.read(path):
        if isinstance(row, BadRow):
            yield row
        else:
            build = partial(_pair, form=form, columns=columns, line=line)
            yield row_fields.built_or_bad_row(row, build, file=path.name, line=line)


def _pair(fields: Mapping[str, Any], *, form: Format, columns: Columns, line: int) -> RawPreference:
    return better_first(check_answers(_PAIR[form](fields, columns, line)))
