"""GSM8K: 8,792 grade-school word problems written by people, with worked solutions.

Cobbe et al. 2021, Training Verifiers to Solve Math Word Problems,
https://arxiv.org/abs/2110.14168. Its test split (1,319 problems) is kept as it is. The
calculator annotations (`<<48/2=24>>`) are taken out of the solutions: no calculator
answers them here.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from stages.params import Params
from stages.records.problems import BadRow, Problem
from stages.sources import hub, raw_rows
from stages.sources.quarantine import RejectedError

SPLITS = ("train", "test")
_ANNOTATION = re.compile(r"<<[^<>]*>>")


class Config(Params):
    """Where GSM8K is."""

    kind: Literal["gsm8k"]
    """Names this source."""
    path: str
    """`openai/gsm8k` on the hub, or a folder with the original files train.jsonl and test.jsonl
    (or .jsonl.gz)."""
    revision: str | None
    """The commit to read from the hub; null for a folder."""
    licence: str
    """Under which licence the data may be used (MIT); goes to the data card."""


def problems(config: Config) -> Iterator[Problem | BadRow]:
    """The problems of both splits, the train split first."""
    for split in SPLITS:
        file = file_name(config, split)
        for line, row in _rows(config, split):
            if isinstance(row, BadRow):
                yield row
            else:
                build = partial(_problem, split=split, line=line)
                yield raw_rows.built_or_bad_row(row, build, file=file, line=line)


def file_name(config: Config, split: str) -> str:
    """The name of the file that holds `split`; on the hub, the split itself."""
    return _file(Path(config.path), split).name if Path(config.path).is_dir() else split


def _rows(config: Config, split: str) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
    folder = Path(config.path)
    if folder.is_dir():
        return raw_rows.read_lines(_file(folder, split))
    return iter(hub.rows(config.path, "main", config.revision, split))


def _file(folder: Path, split: str) -> Path:
    packed = folder / f"{split}.jsonl.gz"
    return packed if packed.exists() else folder / f"{split}.jsonl"


def _problem(fields: Mapping[str, Any], *, split: str, line: int) -> Problem:
    solution = raw_rows.text(fields, "answer")
    working, mark, answer = solution.rpartition("####")
    if not mark or not answer.strip():
        raise RejectedError("answer does not parse: 'answer' does not end with '#### <number>'")
    return Problem(
        id=f"{split}-{line:05d}",
        question=raw_rows.text(fields, "question"),
        answer=answer.strip(),
        solution=f"{_ANNOTATION.sub('', working).rstrip()}\n#### {answer.strip()}",
        split=split,
        line=line,
    )
