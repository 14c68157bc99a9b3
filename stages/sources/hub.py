"""A data set of the Hugging Face hub, or a local folder of JSON or Parquet files.

Read through `datasets`; the columns are named in params.yaml. Where the data set has a
test split, it is kept as it is; otherwise problems are split by hash.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from stages.params import Params
from stages.records.problems import BadRow, Problem
from stages.sources import raw_rows


class Columns(Params):
    """Which column of the data set holds what."""

    question: str
    """The question, as text."""
    answer: str
    """The gold answer: a number, a text that is the answer, or one that ends by stating it
    (`#### 42`, `\\boxed{42}`)."""
    solution: str | None
    """A worked solution that ends with its final answer; null: there is none."""
    id: str | None
    """An id, unique within the data set; null: split and row number."""


class Config(Params):
    """Which data set, and how to read it."""

    kind: Literal["hub"]
    """Names this source."""
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
    columns: Columns
    """Which column holds what."""
    licence: str
    """Under which licence the data may be used; goes to the data card."""


def problems(config: Config) -> Iterator[Problem | BadRow]:
    """The rows of the data set, each as a problem or with the reason why it is none."""
    fixed = config.test_split is not None
    for split, name in (("train", config.train_split), ("test", config.test_split)):
        if name is None:
            continue
        for line, row in rows(config.path, config.name, config.revision, name):
            build = partial(
                _problem,
                columns=config.columns,
                default_id=f"{name}-{line:06d}",
                split=split if fixed else None,
                line=line,
            )
            yield raw_rows.built_or_bad_row(row, build, file=name, line=line)


def _problem(
    fields: Mapping[str, Any], *, columns: Columns, default_id: str, split: str | None, line: int
) -> Problem:
    return Problem(
        id=raw_rows.identifier(fields, columns.id, default_id),
        question=raw_rows.text(fields, columns.question),
        answer=raw_rows.answer(fields, columns.answer),
        solution=raw_rows.optional_text(fields, columns.solution),
        split=split,
        line=line,
    )


def rows(
    path: str, name: str | None, revision: str | None, split: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(row number from 1, its columns) of one split.

    Raises:
        ValueError: `datasets` cannot read it, or the split is empty.
    """
    import datasets
    from datasets.exceptions import DatasetsError

    try:
        loaded = datasets.load_dataset(path, name, revision=revision, split=split)
    except (DatasetsError, OSError, ValueError) as error:
        where = "folder" if Path(path).is_dir() else "hub data set"
        raise ValueError(
            f"cannot read split '{split}' of the {where} '{path}': {error}. Check "
            f"`data.source` in params.yaml; without a way to the hub, save the data set "
            f"to a folder and name that."
        ) from error
    if len(loaded) == 0:
        raise ValueError(f"split '{split}' of '{path}' is empty. Name another one.")
    for line, row in enumerate(loaded, start=1):
        yield line, dict(row)
