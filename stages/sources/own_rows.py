"""Rows of a user's generator: `data.source: {kind: own/mine}`.

`rows(seed)` in stages/sources/own/mine.py yields mappings, each like a line of a file of JSON
lines: the same names of columns are recognised, and bad rows are quarantined in the same way.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from stages.own_modules import (
    describe_error,
    exit_is_error,
    get_own_word,
    load_own_function,
    restored_settings,
)
from stages.sources.containers import RawRow
from stages.sources.problem_files import RowSource

CHUNK = 200
"""Number of rows that are drawn at a time, and of the first rows that are drawn twice."""


def _check_name(kind: str) -> str:
    if get_own_word(kind) is None:
        raise ValueError(
            f"expected own/<file>, a file in stages/sources/own/ (lower-case letters, digits and "
            f"underscores, a letter first), found {kind!r:.100}"
        )
    return kind


class OwnSource(RowSource):
    """Problems or conversations that a function of the user's yields."""

    kind: Annotated[str, AfterValidator(_check_name)]
    """`own/<file>`: a file in stages/sources/own/, without `.py`."""
    files: list[str] = Field(default_factory=list)
    """Files that it opens, relative to the checkout: dependencies, as its imports are."""

    @property
    def path(self) -> str:
        """Its name on the data card."""
        return self.kind


def draw_rows(source: OwnSource, seed: int) -> Iterator[RawRow]:
    """The rows that the user's function yields for a seed.

    A ValueError for a row that is not a JSON object, and if a second call yields other rows.
    """
    word = str(get_own_word(source.kind))
    function = load_own_function("sources", word, "rows", ("seed",))
    file = f"stages/sources/own/{word}.py"
    first, again = (list(itertools.islice(_draw(function, seed, file), CHUNK)) for _ in range(2))
    if first != again:
        raise ValueError(
            f"{file}: expected the same rows for the same seed, found others when it was called "
            f"again: draw with random.Random(seed)"
        )
    return _draw(function, seed, file)


def _draw(function: Callable[[int], Any], seed: int, file: str) -> Iterator[RawRow]:
    number, iterator = itertools.count(1), None
    while True:
        try:
            with exit_is_error(), restored_settings():
                iterator = iterator or iter(function(seed))
                chunk = list(itertools.islice(iterator, CHUNK))
        except Exception as error:
            raise ValueError(f"{file}: {describe_error(error)}") from error
        if not chunk:
            return
        for row in chunk:
            line = next(number)
            yield RawRow(file, line, _read_fields(row, f"{file}, row {line}"))


def _read_fields(row: object, place: str) -> dict[str, Any]:
    try:
        if isinstance(row, Mapping):
            return json.loads(json.dumps(dict(row)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: expected values of JSON, found {error}") from error
    raise ValueError(
        f"{place}: expected a mapping such as {{'question': .., 'answer': ..}}, found a "
        f"{type(row).__name__}"
    )
