"""Problems and conversations of users: any file, folder or data set of the hub.

Each row becomes a problem, or a bad row with a reason. A test split of the source stays as it is;
without one, problems are split by hash. A row is a problem if it has a gold answer, a conversation
if it has only a reply, and a prompt if it has neither.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from stages.config import Params, Where
from stages.records.problems import BadRow, Problem, Turn
from stages.records.transcripts import render_question, show_turn
from stages.rewards.final_answer import extract_answer
from stages.sources import columns as columns_of
from stages.sources import containers, conversations, raw_rows, splitting, tool_calls
from stages.sources.choices import GoldForm, check_listed, count_gold_forms, read_choices
from stages.sources.columns import MISSING, Columns
from stages.sources.containers import RawRow, Rows, pick_split
from stages.sources.dataset_card import NAME as CARD_NAME
from stages.sources.quarantine import RejectedError
from stages.sources.tool_calls import Tools
from stages.sources.unread import NUM_SAMPLE, SourceReport, Unread

NO_UNITS = frozenset({"-", "--", "n/a", "na", "unitless", "dimensionless", "no unit", "no units"})
_CALCULATOR = re.compile(r"<<[-\d .,+*/()%$x×÷]+=[-$ ]*[.\d][-\d .,+*/()%$x×÷=]*>>")
"""Calculator annotations of GSM8K, `<<48/2=24>>`, which repeat the text beside them.

Other text between such marks, as `<<EOF >>` or `(1<<2)>>1`, is imitated.
"""
_SUFFIXES = re.compile(r"(\.(jsonl?|ndjson|csv|tsv|parquet|arrow|gz|zst|xz|bz2))+$")


class RowSource(Params):
    """Selection and columns of rows, for every source of rows."""

    columns: Columns = Columns()
    """Columns by field; if none is given, they are found by their usual names."""
    ignore: list[str] = Field(default_factory=list)
    """Columns, and keys of messages, with content that may be dropped."""
    where: dict[str, Where] = Field(default_factory=dict)
    """Column -> the value, or values, of the rows to read; other rows are skipped."""
    limit: int | None = Field(default=None, gt=0)
    """Number of rows of each split to read, the first ones, for a first try; null: all."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Share of the questions to use, chosen by their hash."""
    licence: str | None = None
    """Licence of the data, for the data card."""


class FileSource(RowSource):
    """Problems or conversations in files or in a data set of the Hugging Face hub."""

    kind: Literal["files"] = "files"
    path: str | list[str]
    """File, folder, glob, list of these, or hub id (`openai/gsm8k`)."""
    test_path: str | list[str] | None = None
    """Path of the test problems, if separate; null: they are in `path`, or split off by hash."""
    name: str | None = None
    """Configuration (`main`) of a hub data set, or of a folder with its README.md."""
    revision: str | None = None
    """Commit of a hub id; without one, two runs may read two versions."""
    train_split: str | None = None
    """Split to train on, or words in the names of its files; null: `train`."""
    test_split: str | None = None
    """Split to test on; null: `test`, if there is one and no words of files are given."""

    @model_validator(mode="after")
    def _one_way_to_name_the_test(self) -> "FileSource":
        if self.test_path is not None and self.test_split is not None:
            raise ValueError("expected test_path or test_split, found both: name one of them")
        return self


def open_splits(source: FileSource, report: SourceReport) -> dict[str | None, Rows]:
    """Rows of each split, read lazily; the key None: rows of an unknown split.

    Raises:
        ValueError: a file or split does not exist.
    """
    if source.test_path is not None:
        return _open_two_paths(source, report)
    path, names = source.path, list[str]()
    if source.train_split or source.test_split:
        names = [source.train_split or "train", *filter(None, [source.test_split])]
    splits, unread = containers.find_splits(path, names, name=source.name, revision=source.revision)
    train = source.train_split or containers.default_split(splits, str(path))
    test = source.test_split or ("test" if "test" in splits and train != "test" else None)
    if test is not None and train == test:
        raise ValueError(
            f"test_split: '{test}': expected another split than the one that is trained on"
        )
    report.unread_files = [str(name) for name in splits if name not in (train, test)]
    report.unread_files += [file.name for file in unread]
    chosen = {None: train} if test is None else {"train": train, "test": test}
    return {split: pick_split(splits, name, str(path))() for split, name in chosen.items()}


def _open_two_paths(source: FileSource, report: SourceReport) -> dict[str | None, Rows]:
    """Train split of `path` and test split of `test_path`; all rows of a path without splits."""
    # The revision applies to the paths that are hub ids, if any is.
    are_hub = [containers.is_hub_id(path) for path in (source.path, source.test_path or "")]
    revisions = [source.revision if is_hub or not any(are_hub) else None for is_hub in are_hub]
    alone = source.model_copy(update={"test_path": None, "revision": revisions[0]})
    train = open_splits(alone, report)
    report.unread_files += ["the test split of `path`"] if "test" in train else []
    only_test = {"path": source.test_path, "train_split": None, "name": None,
                 "revision": revisions[1]}  # fmt: skip
    test = open_splits(alone.model_copy(update=only_test), SourceReport(path=""))
    return {
        "train": train["train"] if "train" in train else train[None],
        "test": next(test[split] for split in ("test", None, "train") if split in test),
    }


def list_local_files(source: FileSource) -> list[Path]:
    """Files of all splits of a source; none for a hub id.

    Raises:
        ValueError: there are no files.
    """
    paths = [source.path, *([] if source.test_path is None else [source.test_path])]
    paths = [path for path in paths if not containers.is_hub_id(path)]
    files = [file for path in paths for file in containers.list_files(path)]
    for path in paths:
        if containers.is_saved_dataset(path):
            files += sorted(Path(str(path)).rglob("*.json"))
    cards = [Path(path) / CARD_NAME for path in paths if isinstance(path, str)]
    return files + [card for card in cards if card.is_file()]


def read_problems(source: FileSource, report: SourceReport) -> Iterator[Problem | BadRow]:
    """Problems and bad rows of all splits, by `parse_splits`; a ValueError if there are none."""
    return parse_splits(open_splits(source, report), source, report)


def parse_splits(
    splits: Mapping[str | None, Rows], source: RowSource, report: SourceReport
) -> Iterator[Problem | BadRow]:
    """Problems and bad rows of all splits, the train split first; fills in `report`.

    Raises:
        ValueError: a column does not exist, no column has a known name, or one with content is not
            read (`Unread`).
    """
    for split, every_row in splits.items():
        rows = itertools.islice(columns_of.keep_rows(every_row, source.where), source.limit)
        head = containers.read_head(rows, NUM_SAMPLE)
        sample = containers.sample_fields(head, source.ignore)
        columns = find_columns(source.columns, sample)
        gold_forms: Mapping[GoldForm, int] = {}
        if columns.choices is not None and columns.answer is not None:
            gold_forms = count_gold_forms(sample, columns.choices, columns.answer)
        note_reading(report, columns, split)
        unread = Unread(
            used=columns.used().values(), ignore=source.ignore, where=source.where, split=split,
            gold=columns.answer, choices=columns.choices, is_imitated=_imitates(columns, sample),
        )  # fmt: skip
        parse = partial(
            parse_problem, columns=columns, split=split, ignore=source.ignore, gold_forms=gold_forms
        )
        for row in unread.watch(itertools.chain(head, rows), report):
            problems = [row] if isinstance(row, BadRow) else _parse_solutions(row, columns, parse)
            for problem in problems:
                is_bad = isinstance(problem, BadRow)
                if is_bad or source.share == 1.0 or _place(problem) < source.share:
                    yield problem


def _place(problem: Problem) -> float:
    """Position of its question's hash in [0, 1), by which a share of the questions is chosen."""
    return splitting.position(splitting.split_key(problem), "source share")


def _imitates(columns: Columns, sample: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the rows have replies to imitate."""
    if columns.solution or columns.assistant or columns.calls:
        return True
    asks = columns.messages
    return asks is not None and not columns_of.ColumnSample(sample).end_with_the_user(asks)


def _parse_solutions(
    row: RawRow, columns: Columns, parse: Callable[[Mapping[str, Any], int, str], Problem]
) -> Iterator[Problem | BadRow]:
    """Problem of a row; if it has several solutions that all state an answer, one per solution.

    If only the last of several texts states an answer, they may be the parts of one solution. A
    test question gives one problem.
    """
    name = str(columns.solution)
    texts = row.fields.get(name)
    texts = [text for text in texts if text] if isinstance(texts, list) else []
    are_stated = [isinstance(text, str) and extract_answer(text) is not None for text in texts]
    if not texts or not all(are_stated):
        yield raw_rows.parse_row(row, parse)
        return
    for number, text in enumerate(texts, start=1):
        problem = raw_rows.parse_row(row._replace(fields={**row.fields, name: text}), parse)
        if number > 1 and isinstance(problem, Problem):
            problem = replace(problem, id=f"{problem.id}-solution-{number}")
        yield problem
        if isinstance(problem, Problem) and problem.split == "test":
            return


def note_reading(report: SourceReport, columns: Columns, split: str | None) -> None:
    """Record which columns are read, and those of a later split if they differ."""
    replies = columns.messages, columns.assistant, columns.solution, columns.calls
    form = "conversations" if any(replies) else "prompts"
    used, form = columns.used(), "problems" if columns.answer is not None else form
    if report.columns and used != report.columns:
        used = report.columns | {f"{field} ({split})": column for field, column in used.items()}
        form = form if form == report.form else f"{report.form}, of {split} {form}"
    report.columns, report.form = used, form


def describe_report(report: SourceReport) -> str:
    """Description of a source's columns, rows and unread parts, in one to three lines."""
    rows = ", ".join(f"{count} rows of {split}" for split, count in report.rows.items())
    columns = ", ".join(f"{field}: {column!r}" for field, column in report.columns.items())
    lines = [f"{report.path}: {report.form}, {rows.replace(' of unsplit', '')}; read as {columns}"]
    if report.unused:
        lines.append(f"  columns that are not read: {', '.join(report.unused)}")
    if report.unread_files:
        lines.append(f"  files or splits that are not read: {', '.join(report.unread_files)}")
    return "\n".join(lines)


def find_columns(columns: Columns, sample: Sequence[Mapping[str, Any]]) -> Columns:
    """Columns that are given, or, if none is, those with usual names.

    Raises:
        ValueError: a column is not in the sample, none is a question, or no name is known.
    """
    if not columns.used():
        return columns_of.recognise(sample) if sample else columns
    columns_of.check_names(columns.used(), sample)
    if not (columns.question or columns.user or columns.messages):
        raise ValueError(
            f"columns: expected a `question`, a `user` or `messages` among them, found "
            f"{', '.join(columns.used())}"
        )
    for fields in (("question", "user", "messages"), ("solution", "assistant")):
        if len(names := [field for field in fields if getattr(columns, field)]) > 1:
            raise ValueError(
                f"columns: expected one of {', '.join(fields)}, found {' and '.join(names)}, which "
                f"say the same: name one, perhaps as a template of both columns"
            )
    return columns


def parse_problem(
    fields: Mapping[str, Any], line: int, file: str, *, columns: Columns, split: str | None,
    ignore: Sequence[str], gold_forms: Mapping[GoldForm, int],
) -> Problem:  # fmt: skip
    """Problem of a row.

    Raises:
        RejectedError: the row lacks a column, or has one of an unexpected type.
    """
    values = read_values(fields, columns)
    tools = tool_calls.read_tools(values.get("tools"), str(columns.tools))
    turns = read_turns(values, columns, ignore, tools)
    reply = solution = None
    if conversations.is_reply(turns[-1]):
        *turns, reply = turns
    if not turns or turns[-1].role not in ("user", "tool"):
        raise RejectedError("no question: the turn before the answer is not the user's")
    if all(turn.role != "user" for turn in turns):
        raise RejectedError("no question: results of tools, and no turn of the user")
    if reply is not None and reply.is_imitated:
        solution, reply = show_turn(reply), None if reply.is_text else reply
    answer, has_choices = None, values.get("choices") is not None
    if columns.answer is not None:
        answer = raw_rows.check_answer(values["answer"], columns.answer, is_choice=has_choices)
        answer = _add_unit(answer, values.get("unit"), columns.unit)
        check_listed(answer, columns.lettered_choices, fields)
    if has_choices:
        choices = read_choices(values["choices"], str(columns.choices))
        turns = [*turns[:-1], choices.ask(turns[-1])]
        answer = None if answer is None else choices.find_letter(values["answer"], gold_forms)
    if values.get("split") is not None:
        splits = columns_of.list_splits(str(columns.split), values["split"])
        if len(splits) != 1:
            raise RejectedError(
                f"unknown split: '{columns.split}' should be train, dev or test, is "
                f"{values['split']!r:.60}"
            )
        (of_row,) = splits
        if {split, of_row} == {"train", "test"}:
            raise RejectedError(
                f"two splits: '{columns.split}' says {of_row}, the file's name or `test_path` "
                f"{split} (ignore: [{columns.split}] takes the latter)"
            )
        split = "test" if split == "test" else of_row
    is_plain = len(turns) == 1 and columns.question is not None and not tools
    name = _SUFFIXES.sub("", file).replace("/", "-")
    return Problem(
        id=raw_rows.check_id(values.get("id"), str(columns.id), f"{name}-{line:06d}"),
        question=render_question(turns), answer=answer, solution=solution, split=split, line=line,
        file=file, turns=None if is_plain else tuple(turns),
        tools=tool_calls.to_json(tools) if tools else None,
        reply=None if solution is None else reply,
    )  # fmt: skip


def _add_unit(answer: str, unit: Any, column: str | None) -> str:
    """Gold answer with its unit appended, unless there is no unit or the answer ends with it.

    A word such as `yes` gets no unit, although the column may have one in every row. The answer
    checker decides whether both together are an answer.
    """
    is_word = not any(char.isdigit() or char == "\\" for char in answer)
    if is_word or columns_of.says_nothing_exact(unit) or str(unit).strip().lower() in NO_UNITS:
        return answer
    text = raw_rows.check_text(unit, str(column)).strip()
    return answer if answer.endswith(text) else f"{answer} {text}"


def read_values(fields: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    """Field of `columns` -> value of the row; RejectedError if a required one is missing."""
    values = dict[str, Any]()
    for key, expression in columns.used().items():
        value = columns_of.evaluate(fields, expression)
        if key in ("question", "user", "messages", "answer"):
            raw_rows.check_filled(value, expression, fields, f"empty {key}")
        if key in ("solution", "assistant"):
            value = columns_of.unwrap_reply(value, values.get("question", values.get("user")))
        values[key] = None if value is MISSING else value
    return values


def read_turns(
    values: Mapping[str, Any], columns: Columns, ignore: Sequence[str], tools: Tools
) -> list[Turn]:
    """Turns of a row: system message, conversation, and the reply, if there is one.

    A reply that is only the gold answer is dropped: SFT would teach to leave the working out. A row
    without a gold answer needs a reply, if a column has replies.
    RejectedError for two different replies, of which one would be lost.
    """
    read = partial(conversations.read_conversation, ignore=ignore, tools=tools)
    key = next(key for key in ("messages", "question", "user") if key in values)
    turns = read(values[key], str(getattr(columns, key)), may_alternate=key == "messages")
    if (system := values.get("system")) is not None:
        turns = conversations.add_system(turns, raw_rows.check_text(system, str(columns.system)))
    if not columns_of.is_empty(values.get("calls")):
        text = raw_rows.check_text(values.get("assistant") or "", str(columns.assistant)).strip()
        calls = tool_calls.read_calls(values["calls"], str(columns.calls), tools)
        return [*turns, Turn("assistant", text, calls=calls)]
    field = "assistant" if columns.solution is None else "solution"
    value, name = values.get(field), getattr(columns, field)
    if value and isinstance(value, list | dict):
        return conversations.join(turns, read(value, str(name)), str(name))
    text = "" if value in (None, []) else raw_rows.check_text(value, str(name))
    if not text.strip() and name is not None and columns.answer is None:
        raise RejectedError(f"empty reply: '{name}' holds no text, and there is no gold answer")
    conversations.check_reply(text)
    is_gold = text.strip() == str(values.get("answer")).strip() and extract_answer(text) is None
    text = _CALCULATOR.sub("", text).strip()
    if not text or is_gold:
        return turns
    if conversations.is_reply(turns[-1]):
        last = _CALCULATOR.sub("", turns.pop().content).strip()
        if last != text:
            raise RejectedError(
                f"two replies: the conversation ends with {last!r:.40}, and '{name}' has another"
            )
    return [*turns, Turn("assistant", text)]
