"""Your own problems: a file of JSON lines (`.jsonl`, or gzip as `.jsonl.gz`).

    {"id": "7", "question": "...", "answer": "42", "solution": "... #### 42", "split": "train"}

`question` (text) and `answer` (text or number) are required. `solution` is a worked
solution to imitate that ends with its final answer; at least some training problems
must have one. `id` (text or whole number) is the file's name and the line otherwise.
`split` is `train` or `test`; where no row says `test`, problems are split by hash.
Other keys are ignored.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from stages.params import Params
from stages.records.problems import BadRow, Problem
from stages.sources import raw_rows
from stages.sources.quarantine import RejectedError

SPLITS = ("train", "test")


class Config(Params):
    """Where the file is."""

    kind: Literal["json_lines"]
    """Names this source."""
    path: str
    """The file, relative to the repository. List it under prepare_data's `deps` in dvc.yaml,
    so that DVC notices when it changes."""
    licence: str
    """Under which licence the data may be used; goes to the data card."""


def problems(config: Config) -> Iterator[Problem | BadRow]:
    """The rows of the file, each as a problem or with the reason why it is none."""
    path = Path(config.path)
    for line, row in raw_rows.read_lines(path):
        if isinstance(row, BadRow):
            yield row
        else:
            build = partial(_problem, file=path.name, line=line)
            yield raw_rows.built_or_bad_row(row, build, file=path.name, line=line)


def _problem(fields: Mapping[str, Any], *, file: str, line: int) -> Problem:
    split = raw_rows.optional_text(fields, "split")
    if split is not None and split not in SPLITS:
        raise RejectedError(f"unknown split: 'split' should be train or test and is {split!r:.60}")
    return Problem(
        id=raw_rows.identifier(fields, "id", f"{file.partition('.')[0]}-{line:06d}"),
        question=raw_rows.text(fields, "question"),
        answer=raw_rows.answer(fields, "answer"),
        solution=raw_rows.optional_text(fields, "solution"),
        split=split,
        line=line,
    )
