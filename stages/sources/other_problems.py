"""Problems of another source, to see what a policy has learned beyond its own.

A file of JSON lines or one JSON array, plain or gzip. Which keys hold the question and the answer
is said by params.yaml; a question may be of several, joined by a space (SVAMP has `Body` and
`Question`; GSM-Hard `input` and `target`).
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from stages.params import Params
from stages.records.bad_row import BadRow
from stages.records.problem import Problem
from stages.rewards import answer_checker
from stages.sources import raw_rows, row_fields
from stages.sources.quarantine import RejectedError


class Config(Params):
    """What a row of the file is like, and how many are read."""

    question: list[str] = Field(min_length=1)
    """The keys of the question's parts."""
    answer: str
    """The key of the answer, text or a number."""
    num_problems: int = Field(gt=0)
    """The first so many that can be used."""
    max_bad_share: float = Field(ge=0, lt=1)
    """Largest share of rows that cannot; above it the file is refused."""


def problems(path: Path, config: Config) -> list[Problem]:
    """The first problems of the file.

    Raises:
        ValueError: too many of the rows up to there are bad.
    """
    found: list[Problem] = []
    bad: list[BadRow] = []
    for row in _rows(path, config):
        if isinstance(row, BadRow):
            bad.append(row)
        else:
            found.append(row)
        if len(found) == config.num_problems:
            break
    if len(bad) > config.max_bad_share * (len(found) + len(bad)) or not found:
        first = f"; the first, line {bad[0].line}: {bad[0].reason}" if bad else ""
        raise ValueError(
            f"{path}: expected problems of which at most {config.max_bad_share:.1%} are bad, found "
            f"{len(found)} good and {len(bad)} bad ones{first}. Name the file's own keys in "
            f"probe_policy.transfer of params.yaml."
        )
    return found


def _rows(path: Path, config: Config) -> Iterator[Problem | BadRow]:
    for line, row in raw_rows.read(path):
        if isinstance(row, BadRow):
            yield row
        else:
            build = partial(_problem, config=config, file=path.name, line=line)
            yield row_fields.built_or_bad_row(row, build, file=path.name, line=line)


def _problem(fields: Mapping[str, Any], *, config: Config, file: str, line: int) -> Problem:
    answer = answer_checker.read_gold(row_fields.answer(fields, config.answer))
    if answer is None:
        raise RejectedError(f"answer does not parse: '{config.answer}' is no final answer")
    return Problem(
        id=f"{file.partition('.')[0]}-{line:06d}",
        question=" ".join(row_fields.text(fields, key) for key in config.question),
        answer=answer,
        solution=None,
        split="test",
        line=line,
    )
