"""Lookup table of two columns of a file."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stages.records.problems import BadRow
from stages.sources.containers import read_file


@dataclass(frozen=True, slots=True)
class LookupTable:
    """Texts of one column by those of another."""

    value: str
    """Name of the column that is looked up."""
    texts: Mapping[str, str]

    def look_up(self, name: str) -> str:
        """Looks up a name in a table.

        Args:
            name: As it stands in the question.
        """
        return self.texts.get(name, "not in the table")

    def score(self, name: str, reply: str) -> float:
        """1 if the value is the text after the last `####` of a reply; without one, all of it."""
        return float(reply.rpartition("####")[2].strip() == self.texts[name].strip())


@functools.lru_cache(maxsize=8)
def read_table(path: str, key: str, value: str) -> LookupTable:
    """Columns `key` and `value` of a file of any form in `sources/containers`.

    Raises:
        ValueError: a row cannot be read or lacks a column, or a key occurs twice.
    """
    table = dict[str, str]()
    for row in read_file(Path(path)):
        if isinstance(row, BadRow):
            raise ValueError(f"{path}, row {row.line}: {row.reason}. Correct or delete it")
        if row.fields.get(key) is None or row.fields.get(value) is None:
            columns = ", ".join(row.fields)
            raise ValueError(
                f"{path}, row {row.line}: expected columns '{key}' and '{value}', found {columns}: "
                f"correct the row, or the preset's options `key` and `value`"
            )
        name = str(row.fields[key])
        if name in table:
            raise ValueError(
                f"{path}, row {row.line}: '{name}' is the {key} of two rows: delete one of them"
            )
        table[name] = str(row.fields[value])
    return LookupTable(value, table)
