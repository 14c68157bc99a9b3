"""Problems that other people wrote: GSM8K, a file of JSON lines, a data set of the hub.

Each row comes as a problem, or with the reason why it is none. A test split that the source has is
kept as it is; otherwise problems are split by hash. `licence`, under which the data may be used,
goes to the data card.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from stages.config import Params
from stages.records.problems import BadRow, Problem
from stages.sources import raw_rows
from stages.sources.quarantine import RejectedError

SPLITS = ("train", "test")


class ProblemColumns(Params):
    """Which column of the data set holds what."""

    question: str
    answer: str
    """The gold answer: a number, a text that is the answer, or one that ends by stating it
    (`#### 42`, `\\boxed{42}`)."""
    solution: str | None
    """A worked solution that ends with its final answer; null: there is none."""
    id: str | None
    """An id, unique within the data set; null: split and row number."""


def _problem(
    fields: Mapping[str, Any], line: int, *, columns: ProblemColumns, name: str, split: str | None
) -> Problem:
    return Problem(
        id=raw_rows.read_id(fields, columns.id, f"{name}-{line:06d}"),
        question=raw_rows.read_text(fields, columns.question),
        answer=raw_rows.read_answer(fields, columns.answer),
        solution=raw_rows.read_optional_text(fields, columns.solution), split=split, line=line,
    )  # fmt: skip


class JsonLines(Params):
    """Your own problems: a file of JSON lines (`.jsonl`, or gzip as `.jsonl.gz`).

        {"id": "7", "question": "...", "answer": "42", "solution": "... #### 42", "split": "train"}

    `question` (text) and `answer` (text or number) are required. `solution` is a worked solution to
    imitate that ends with its final answer; at least some training problems must have one. `id`
    (text or whole number) is the file's name and the line otherwise. `split` is `train` or `test`;
    where no row says `test`, problems are split by hash. Other keys are ignored.
    """

    kind: Literal["json_lines"]
    path: str
    """The file, relative to the repository. List it under prepare_data's `deps` in dvc.yaml,
    so that DVC notices when it changes."""
    licence: str

    def problems(self) -> Iterator[Problem | BadRow]:
        """The rows of the file."""
        path = Path(self.path)
        parse = partial(_own_problem, name=path.name.partition(".")[0])
        return raw_rows.parse_rows(raw_rows.read_lines(path), parse, path.name)

    def file_name(self, _split: str | None) -> str:
        """The name of the file, which holds every split."""
        return Path(self.path).name


OWN = ProblemColumns(question="question", answer="answer", solution="solution", id="id")


def _own_problem(fields: Mapping[str, Any], line: int, *, name: str) -> Problem:
    split = raw_rows.read_optional_text(fields, "split")
    if split not in (None, *SPLITS):
        raise RejectedError(f"unknown split: 'split' should be train or test and is {split!r:.60}")
    return _problem(fields, line, columns=OWN, name=name, split=split)


class Hub(Params):
    """A data set of the Hugging Face hub, read through `datasets`, or a folder of its files."""

    kind: Literal["hub"]
    path: str
    """A hub id (`openai/gsm8k`), or a local folder of .json, .jsonl or .parquet files. List a
    folder under prepare_data's `deps` in dvc.yaml, so that DVC notices when it changes."""
    name: str | None
    """The data set's configuration (`main`), where it has several."""
    revision: str | None
    """The commit to read; name one for anything on the hub, or two runs may read two versions."""
    train_split: str
    """The split that becomes train, preference and dev problems."""
    test_split: str | None
    """The split that becomes test problems; null: they are taken from `train_split` by hash."""
    columns: ProblemColumns
    licence: str

    def problems(self) -> Iterator[Problem | BadRow]:
        """The rows of both splits, the train split first."""
        fixed = {"train": self.train_split, "test": self.test_split}
        names = {None: self.train_split} if self.test_split is None else fixed
        for split, name in names.items():
            parse = partial(_problem, columns=self.columns, name=name, split=split)
            rows = raw_rows.load_hub_rows(self.path, self.name, self.revision, name)
            yield from raw_rows.parse_rows(rows, parse, name)

    def file_name(self, split: str | None) -> str:
        """The hub's split that holds `split`."""
        return self.train_split if split != "test" else str(self.test_split)


class Gsm8k(Params):
    """GSM8K: 8,792 grade-school word problems written by people, with worked solutions.

    Cobbe et al. 2021, Training Verifiers to Solve Math Word Problems,
    https://arxiv.org/abs/2110.14168. Its test split (1,319 problems) is kept as it is. The
    calculator's annotations (`<<48/2=24>>`) are taken out of the solutions: none is used here.
    """

    kind: Literal["gsm8k"]
    path: str
    """`openai/gsm8k` on the hub, or a folder with the original files train.jsonl and test.jsonl
    (or .jsonl.gz)."""
    revision: str | None = None
    """The commit to read from the hub; none for a folder."""
    licence: Literal["MIT"] = "MIT"

    def problems(self) -> Iterator[Problem | BadRow]:
        """The problems of both splits, the train split first."""
        for split in SPLITS:
            file = self.file_name(split)
            if Path(self.path).is_dir():
                rows = raw_rows.read_lines(Path(self.path) / file)
            else:
                rows = raw_rows.load_hub_rows(self.path, "main", self.revision, split)
            yield from raw_rows.parse_rows(rows, partial(_gsm8k_problem, split=split), file)

    def file_name(self, split: str | None) -> str:
        """The name of the file that holds `split`; on the hub, the split itself."""
        split = split or "train"
        if not Path(self.path).is_dir():
            return split
        packed = Path(self.path) / f"{split}.jsonl.gz"
        return packed.name if packed.exists() else f"{split}.jsonl"


_ANNOTATION = re.compile(r"<<[^<>]*>>")


def _gsm8k_problem(fields: Mapping[str, Any], line: int, *, split: str) -> Problem:
    solution = raw_rows.read_text(fields, "answer")
    working, mark, answer = solution.rpartition("####")
    if not mark or not answer.strip():
        raise RejectedError("answer does not parse: 'answer' does not end with '#### <number>'")
    return Problem(
        id=f"{split}-{line:05d}",
        question=raw_rows.read_text(fields, "question"),
        answer=answer.strip(),
        solution=f"{_ANNOTATION.sub('', working).rstrip()}\n#### {answer.strip()}",
        split=split,
        line=line,
    )
