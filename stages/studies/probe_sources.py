"""Where probes come from: other sources' problems, requests to refuse, other numbers."""

import csv
import gzip
import random
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from stages.params import Params
from stages.records.problems import BadRow, Problem
from stages.rewards import answer_checker
from stages.seeding import derive
from stages.sources import raw_rows, word_problems
from stages.sources.quarantine import RejectedError
from stages.sources.word_problems import Move, chain


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
    read = partial(_problem, config=config, file=path.name)
    for row in raw_rows.build(raw_rows.read_rows(path), read, path.name):
        bad.append(row) if isinstance(row, BadRow) else found.append(row)
        if len(found) == config.num_problems:
            break
    if len(bad) > config.max_bad_share * (len(found) + len(bad)) or not found:
        first = f"; the first, line {bad[0].line}: {bad[0].reason}" if bad else ""
        raise ValueError(
            f"{path}: expected problems of which at most {config.max_bad_share:.1%} are bad, found "
            f"{len(found)} good and {len(bad)} bad ones{first}. Name the file's own keys in "
            f"probes.transfer_format of stages/studies/params.yaml."
        )
    return found


def _problem(fields: Mapping[str, Any], line: int, *, config: Config, file: str) -> Problem:
    answer = answer_checker.read_gold(raw_rows.answer(fields, config.answer))
    if answer is None:
        raise RejectedError(f"answer does not parse: '{config.answer}' is no final answer")
    return Problem(
        id=f"{file.partition('.')[0]}-{line:06d}",
        question=" ".join(raw_rows.text(fields, key) for key in config.question),
        answer=answer,
        solution=None,
        split="test",
        line=line,
    )


LABELS = ("safe", "unsafe")


class Request(NamedTuple):
    """One row of the file."""

    id: str
    text: str
    label: str
    """`safe`: to be answered; `unsafe`: to be refused."""


def requests(path: Path) -> list[Request]:
    """All requests of a file such as XSTest's.

    Raises:
        ValueError: no such file, a column is missing, or a row has another label, no text or an
            id twice.
    """
    if not path.is_file():
        raise ValueError(f"{path}: expected a CSV of requests, found no file. Put it there.")
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[str, Request] = {}
    for number, row in enumerate(rows, start=1):
        name, text, label = (row.get(column) or "" for column in ("id", "prompt", "label"))
        if not name or not text.strip() or label not in LABELS or name in found:
            raise ValueError(
                f"{path}, row {number}: expected an id of its own, a prompt and a label of "
                f"{LABELS}, found id {name!r}, label {label!r} and {len(text)} characters. The "
                f"columns are to be called id, prompt and label, as in XSTest."
            )
        found[name] = Request(f"xstest-{name}", text, label)
    if not found:
        raise ValueError(f"{path}: expected requests, found none.")
    return list(found.values())


MAX_DRAWS = 200_000
"""Of chains for all problems together; the rarest operations come once in about 300."""

_DIGITS = re.compile(r"\d+")


def redraw(questions: Sequence[str], *, seed: int) -> list[tuple[str, str] | None]:
    """(question, answer) for each question: its words, other numbers.

    None of a question that the generator cannot have told, and of one whose operations did not come
    in `MAX_DRAWS` draws. The largest value that may occur is the largest in `questions`.
    """
    told = [word_problems.read_question(question) for question in questions]
    waiting: dict[str, list[int]] = {}
    largest = 0
    for place, one in enumerate(told):
        if one is not None:
            waiting.setdefault(_operators(one[1]), []).append(place)
            largest = max(largest, *word_problems.chain_values(*one))
    found: list[tuple[str, str] | None] = [None] * len(questions)
    # Each operators' problems are served in turn, so a draw is used once.
    for places in waiting.values():
        places.reverse()
    for draw in range(MAX_DRAWS):
        if not any(waiting.values()):
            break
        start, moves, answer = chain(random.Random(derive(seed, "redraw", draw)), largest)
        places = waiting.get(_operators(moves))
        if places and told[places[-1]] != (start, moves):
            place = places.pop()
            found[place] = _with_numbers(questions[place], start, moves), str(answer)
    return found


def _operators(moves: Sequence[Move]) -> str:
    return "".join(move.operator for move in moves)


def _with_numbers(question: str, start: int, moves: Sequence[Move]) -> str:
    numbers = iter([start, *(move.operand for move in moves)])
    changed = _DIGITS.sub(lambda _: str(next(numbers)), question)
    assert word_problems.read_question(changed) == (start, list(moves)), changed
    return changed
