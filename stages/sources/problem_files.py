"""Problems and conversations that people bring: any file, folder or data set of the hub.

Each row comes as a problem, or with the reason why it is none. A test split that the source has is
kept as it is; otherwise problems are split by hash. A row is a problem where it has a gold answer,
a conversation where it has none, and a prompt alone where it has no reply either.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from stages.config import Params
from stages.records.problems import BadRow, Problem, Turn
from stages.records.transcripts import render_question, show_turn
from stages.rewards.final_answer import extract_answer
from stages.rewards.number_parsing import parse_number
from stages.sources import columns as columns_of
from stages.sources import (
    containers,
    conversations,
    dataset_card,
    raw_rows,
    splitting,
    tool_calls,
)
from stages.sources.choices import GoldForm, check_numbers, find_gold_form, read_choices
from stages.sources.columns import MISSING, Columns, Reading
from stages.sources.containers import RawRow
from stages.sources.quarantine import RejectedError

NUM_SAMPLE = 200
"""Rows by which the columns of a file are found."""
SPLITS = ("train", "test")
MAX_UNIT_WORDS = 2
"""A longer text is no unit, but perhaps a unit of a textbook, unless its words are known."""
NO_UNITS = frozenset({"-", "--", "n/a", "na", "unitless", "dimensionless", "no unit", "no units"})
_CALCULATOR = re.compile(r"<<[-\d .,+*/()%$x×÷]+=[-$ ]*[.\d][-\d .,+*/()%$x×÷=]*>>")
"""The calculator's annotations in GSM8K, `<<48/2=24>>`; the text beside them says the same.

Other text between such marks, as `<<EOF >>` or `(1<<2)>>1`, is a part of what is imitated.
"""
_SUFFIXES = re.compile(r"(\.(jsonl?|ndjson|csv|tsv|parquet|arrow|gz|zst|xz|bz2))+$")


@dataclass(kw_only=True, slots=True)
class SourceReport:
    """How a source was read: for the terminal, the data card and the doctor."""

    path: str
    form: str = ""
    """problems, conversations or prompts."""
    columns: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    """Columns that are not read."""
    unread_files: list[str] = field(default_factory=list)
    """Files or splits that are neither train nor test."""
    rows: dict[str, int] = field(default_factory=dict)
    """Number of rows by split; `unsplit` where the source has no splits."""


class FileSource(Params):
    """Problems or conversations in files or in a data set of the Hugging Face hub."""

    kind: Literal["files"] = "files"
    path: str | list[str]
    """A file, a folder, a glob, a list of these, or a hub id (`openai/gsm8k`)."""
    test_path: str | list[str] | None = None
    """Where test problems are, if elsewhere; null: in `path`, or taken from it by hash."""
    name: str | None = None
    """The configuration (`main`) of a hub data set, or of a folder with its README.md."""
    revision: str | None = None
    """The commit of a hub id; without one, two runs may read two versions."""
    train_split: str | None = None
    """The split that is trained on, or words of the names of its files; null: `train`."""
    test_split: str | None = None
    """The split that is tested on; null: `test`, if there is one."""
    columns: Columns = Columns()
    """Which column holds what; where none is named, they are found by their usual names."""
    ignore: list[str] = Field(default_factory=list)
    """Columns, and keys of messages, that say something and may be dropped."""
    limit: int | None = Field(default=None, gt=0)
    """The first rows of each split alone, for a first try."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Share of the questions that is taken, chosen by their hash."""
    licence: str | None = None
    """Under which licence the data may be used; it goes to the data card."""

    @model_validator(mode="after")
    def _one_way_to_name_the_test(self) -> "FileSource":
        if self.test_path is not None and self.test_split is not None:
            raise ValueError("expected test_path or test_split, found both: name one of them")
        return self


def open_splits(source: FileSource, report: SourceReport) -> dict[str | None, containers.Rows]:
    """The rows of each split, read as they are asked for; None: of no known split.

    Raises:
        ValueError: files or splits that are not there.
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
    return {
        split: containers.pick_split(splits, name, str(path))() for split, name in chosen.items()
    }


def _open_two_paths(source: FileSource, report: SourceReport) -> dict[str | None, containers.Rows]:
    """The train split of `path` and the test split of `test_path`, or all where there is none."""
    revisions = _choose_revisions(source)
    alone = source.model_copy(update={"test_path": None, "revision": revisions[0]})
    train = open_splits(alone, report)
    report.unread_files += ["the test split of `path`"] if "test" in train else []
    only_test = {"path": source.test_path, "train_split": None, "name": None}
    only_test["revision"] = revisions[1]
    test = open_splits(alone.model_copy(update=only_test), SourceReport(path=""))
    return {
        "train": train["train"] if "train" in train else train[None],
        "test": next(test[split] for split in ("test", None, "train") if split in test),
    }


def _choose_revisions(source: FileSource) -> tuple[str | None, str | None]:
    """The revision of `path` and of `test_path`: of those that are of the hub, if any is."""
    are_hub = [containers.is_hub_id(path) for path in (source.path, source.test_path or "")]
    train, test = (source.revision if is_hub or not any(are_hub) else None for is_hub in are_hub)
    return train, test


def list_local_files(source: FileSource) -> list[Path]:
    """The files of a source, those of every split; none of a hub id.

    Raises:
        ValueError: nothing is there.
    """
    paths = [source.path, *([] if source.test_path is None else [source.test_path])]
    paths = [path for path in paths if not containers.is_hub_id(path)]
    files = [file for path in paths for file in containers.list_files(path)]
    for path in paths:
        if containers.is_saved_dataset(path):
            files += sorted(Path(str(path)).rglob("*.json"))
    cards = [Path(path) / dataset_card.NAME for path in paths if isinstance(path, str)]
    return files + [card for card in cards if card.is_file()]


def read_problems(source: FileSource, report: SourceReport) -> Iterator[Problem | BadRow]:
    """The rows of all splits, the train split first; `report` is filled in.

    Raises:
        ValueError: files or columns that are not there, columns without a name that is known, or
            one that carries meaning and is not read.
    """
    unused = dict[str, None]()
    for split, every_row in open_splits(source, report).items():
        rows = itertools.islice(every_row, source.limit)
        head = list(itertools.islice(rows, NUM_SAMPLE))
        sample = containers.sample_fields(head, source.ignore)
        reading = find_columns(source.columns, sample)
        gold_form = None
        if reading.columns.choices is not None and reading.columns.answer is not None:
            check_numbers(sample, reading.columns.choices, reading.columns.answer)
            gold_form = find_gold_form(sample, reading.columns.choices, reading.columns.answer)
        note_reading(report, reading.columns, split)
        expressions = reading.expressions()
        parse = partial(
            parse_problem, reading=reading, split=split, ignore=source.ignore, gold_form=gold_form
        )
        has_gold, num_rows = reading.columns.answer is not None, 0
        for row in itertools.chain(head, rows):
            num_rows += 1
            if isinstance(row, BadRow):
                yield row
                continue
            verdicts = columns_of.find_correctness(row.fields, reading, source.ignore)
            droppable = [*source.ignore, *verdicts]
            unread = itertools.chain(
                columns_of.find_unread(row.fields, expressions, droppable, has_gold=has_gold),
                columns_of.find_other_golds(row.fields, reading.columns, droppable),
            )
            if split == "test":  # which a column may say again
                unread = (
                    name
                    for name in unread
                    if not columns_of.says_test(name, columns_of.find(row.fields, name))
                )
            if unread := [*dict.fromkeys(unread)]:
                raise ValueError(describe_unread(row, unread))
            roots = {
                columns_of.root(name, row.fields) for name in columns_of.all_names(expressions)
            } | verdicts.keys()
            if not repeats_the_row(row, reading, source.ignore):
                roots.discard(str(reading.duplicate))
            unused |= dict.fromkeys(name for name in row.fields if name not in roots)
            unused |= dict.fromkeys(columns_of.find_unread_keys(row.fields, expressions))
            for problem in _parse_solutions(row, reading.columns, parse):
                if isinstance(problem, BadRow) or is_taken(problem, source.share):
                    yield problem
        report.rows[split or "unsplit"] = num_rows
    report.unused = list(unused)


def _parse_solutions(
    row: RawRow, columns: Columns, parse: Callable[[Mapping[str, Any], int, str], Problem]
) -> Iterator[Problem | BadRow]:
    """The problem of a row; if it has several solutions and each states an answer, one for each.

    Of texts of which only the last one does they are the parts of one solution, or nobody knows.
    A test question is asked once.
    """
    name = str(columns.solution)
    texts = row.fields.get(name)
    texts = [text for text in texts if text] if isinstance(texts, list) else []
    if not texts or not all(map(_states_answer, texts)):
        yield raw_rows.parse_row(row, parse)
        return
    for number, text in enumerate(texts, start=1):
        problem = raw_rows.parse_row(row._replace(fields={**row.fields, name: text}), parse)
        if number > 1 and isinstance(problem, Problem):
            problem = replace(problem, id=f"{problem.id}-solution-{number}")
        yield problem
        if isinstance(problem, Problem) and problem.split == "test":
            return


def _states_answer(text: Any) -> bool:
    """Whether it is text in which the answer checker reads a final answer."""
    return isinstance(text, str) and extract_answer(text) is not None


def note_reading(report: SourceReport, columns: Columns, split: str | None) -> None:
    """Record which columns are read; those of a later split beside, where they are others."""
    used, form = columns.used(), name_form(columns)
    if report.columns and used != report.columns:
        used = report.columns | {f"{field} ({split})": column for field, column in used.items()}
        form = form if form == report.form else f"{report.form}, of {split} {form}"
    report.columns, report.form = used, form


def describe_report(report: SourceReport) -> str:
    """How a source was read, in a line or two."""
    rows = ", ".join(f"{count} rows of {split}" for split, count in report.rows.items())
    columns = ", ".join(f"{field}: {column!r}" for field, column in report.columns.items())
    lines = [f"{report.path}: {report.form}, {rows.replace(' of unsplit', '')}; read as {columns}"]
    if report.unused:
        lines.append(f"  columns that are not read: {', '.join(report.unused)}")
        lines += _describe_other_replies(report)
    if report.unread_files:
        lines.append(f"  files or splits that are not read: {', '.join(report.unread_files)}")
    return "\n".join(lines)


def _describe_other_replies(report: SourceReport) -> Iterator[str]:
    """How to imitate the replies of a conversation that is not read beside a solution."""
    columns = report.columns
    asks, says = (
        next((columns[field] for field in fields if field in columns), None)
        for fields in (("question", "user"), ("solution", "assistant"))
    )
    for name in columns_of.MESSAGE_LISTS:
        if asks and says and name in report.unused:
            answer = f", answer: {columns['answer']}" if "answer" in columns else ""
            dropped = ", ".join(part for part in (asks, says) if part != columns.get("answer"))
            yield (
                f"  '{says}' is imitated; to imitate the replies in '{name}': "
                f"columns: {{messages: {name}{answer}}}, ignore: [{dropped}]"
            )


def find_columns(columns: Columns, sample: Sequence[Mapping[str, Any]]) -> Reading:
    """The columns that are named, or those with usual names where none is.

    Raises:
        ValueError: one is not in the sample, none asks anything, or no name is known.
    """
    if not columns.used():
        return columns_of.recognise(sample) if sample else Reading(columns)
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
    return Reading(columns)


def name_form(columns: Columns) -> str:
    """What rows of these columns are."""
    if columns.answer is not None:
        return "problems"
    replies = columns.messages, columns.assistant, columns.solution, columns.calls
    return "conversations" if any(replies) else "prompts"


_THOUGHT_HINT = (
    "What is thought before a reply is imitated with it as columns: {user: .., assistant: "
    '"<think>\\n{<this column>}\\n</think>\\n{<the reply>}"}, beside a gold answer as {question: '
    ".., answer: .., solution: <the same template>}, in `pairs` as such templates of chosen and "
    "rejected"
)
_EXACT_HINT = "Answers are compared exactly, and none counts as right within a tolerance"
_UNIT_HINT = (
    "A unit is put behind the gold answer as columns: {unit: unit, ..}, or is a part of a "
    'template, as {answer: "{<the answer>} {unit}", ..}'
)
HINTS = {
    "tools": "Demonstrations are read with tools (columns: {tools: tools}), pairs without",
    "functions": "Demonstrations are read with tools (columns: {tools: functions}), pairs without",
    "helpfulness": "Rated answers are compared in a row of `pairs` with `by: people`",
    "score": "Rated answers are compared in a row of `pairs` with `by: people`",
    "reward_model": "Name the gold answer as columns: {messages: prompt, answer: reward_model...}",
    **dict.fromkeys(("reasoning", "Complex_CoT", "reasoning_content", "thinking"), _THOUGHT_HINT),
    **dict.fromkeys(("tolerance", "tol", "atol", "rtol", "error"), _EXACT_HINT),
    **dict.fromkeys(("unit", "units"), _UNIT_HINT),
}
_CHOICES_HINT = (
    "Choices in columns of their own become a part of the question as columns: {question: "
    '"{<question>}\\n(A) {<first choice>}\\n(B) {<second choice>}", answer: ..}'
)


def describe_unread(row: RawRow, names: Sequence[str]) -> str:
    """What to do about columns that carry meaning and are not read."""
    hint = "Name what is needed under `columns`, also as a part of a template"
    if any(map(columns_of.CHOICE_COLUMN.fullmatch, names)):
        hint = _CHOICES_HINT
    if any(map(columns_of.is_thought, names)):
        hint = _THOUGHT_HINT
    hint = next((HINTS[name] for name in names if name in HINTS), hint)
    if any(columns_of.says_test(name, columns_of.find(row.fields, name)) for name in names):
        hint = (
            "What is not to be trained on is kept apart as columns: {split: .., ..}, in `pairs` by "
            "a file of its own"
        )
    shown, value = ", ".join(names), columns_of.find(row.fields, names[0])
    content = "" if value is MISSING else f" ({names[0]}: {value!r:.60})"  # MISSING: not in all
    return (
        f"{row.file}, row {row.line}: {shown} carries meaning and is not read{content}. {hint}; "
        f"what may be dropped: ignore: [{shown}]."
    )


def repeats_the_row(row: RawRow, reading: Reading, ignore: Sequence[str]) -> bool:
    """Whether a conversation beside a question and its solution says these again and no more.

    False: its reply is another, or it cannot be read. That it asks another question is said where
    the row is parsed.

    Raises:
        ValueError: it has a system message or other turns, which would be lost.
    """
    columns, name = reading.columns, reading.duplicate
    asks = columns.question or columns.user
    value = columns_of.find(row.fields, str(name)) if name is not None else None
    if asks is None or columns_of.is_empty(value) or value is MISSING:
        return True
    try:
        values = read_values(row.fields, columns)
        turns = conversations.read_conversation(value, str(name), ignore)
        solution = read_solution(values, columns)
    except RejectedError:
        return False
    question = str(values["question" if columns.question else "user"]).strip()
    if turns[0] == Turn("system", str(values.get("system") or "").strip()):
        del turns[0]
    if all(turn.content != question for turn in turns):
        return True
    first, *replies = turns
    is_exchange = first.role == "user" and all(map(conversations.is_reply, replies))
    if first.content != question or not is_exchange:
        raise ValueError(
            f"{row.file}, row {row.line}: '{name}' holds more turns than the question in '{asks}' "
            f"and its reply ({', '.join(turn.role for turn in turns):.60}), which are not read. "
            f"Name it as columns: {{messages: {name}, ..}}, or drop it: ignore: [{name}]."
        )
    texts = [_CALCULATOR.sub("", show_turn(turn)).strip() for turn in replies]
    return texts in ([], [solution])


def is_taken(problem: Problem, share: float) -> bool:
    """Whether a problem is within the share of the questions."""
    if share == 1.0:
        return True
    return splitting.position(splitting.split_key(problem), "source share") < share


def parse_problem(
    fields: Mapping[str, Any], line: int, file: str, *, reading: Reading, split: str | None,
    ignore: Sequence[str], gold_form: GoldForm | None = None,
) -> Problem:  # fmt: skip
    """The problem of a row.

    Raises:
        RejectedError: it lacks a column, or has one of another type than expected.
    """
    columns = reading.columns
    columns_of.check_valid(fields, reading.expressions(), ignore)
    columns_of.check_right(fields, reading, ignore)
    values = read_values(fields, columns)
    turns = read_turns(values, columns, ignore)
    _check_repeated(fields, reading)
    turns = add_reply(turns, values, columns, ignore)
    solution = read_solution(values, columns)
    reply = None
    if conversations.is_reply(turns[-1]):
        *turns, reply = turns
    if not turns or turns[-1].role not in ("user", "tool"):
        raise RejectedError("no question: the turn before the answer is not the user's")
    if all(turn.role != "user" for turn in turns):
        raise RejectedError("no question: results of tools, and no turn of the user")
    _check_reply(reply, solution, columns)
    if solution is not None or reply is None or not reply.is_imitated:
        reply = None
    else:
        solution = show_turn(reply)
    tools = tool_calls.read_tools(values.get("tools"), str(columns.tools))
    answer, has_choices = None, values.get("choices") is not None
    if columns.answer is not None:
        answer = raw_rows.check_answer(values["answer"], columns.answer, is_choice=has_choices)
        answer = _add_unit(answer, values.get("unit"), columns.unit)
    if has_choices:
        choices = read_choices(values["choices"], str(columns.choices))
        turns = [*turns[:-1], choices.ask(turns[-1])]
        answer = None if answer is None else choices.find_letter(values["answer"], gold_form)
    if values.get("split") is not None:
        split = columns_of.read_split(str(columns.split), values["split"])
        if split not in SPLITS:
            raise RejectedError(
                f"unknown split: '{columns.split}' should be train or test and is {split!r:.60}"
            )
    is_plain = len(turns) == 1 and columns.question is not None and tools is None
    name = _SUFFIXES.sub("", file).replace("/", "-")
    return Problem(
        id=raw_rows.check_id(values.get("id"), str(columns.id), f"{name}-{line:06d}"),
        question=render_question(turns), answer=answer, solution=solution, split=split, line=line,
        file=file, turns=None if is_plain else tuple(turns), tools=tools,
        reply=None if reply is None or reply.is_text else reply,
    )  # fmt: skip


def _add_unit(answer: str, unit: Any, column: str | None) -> str:
    """The gold answer with its unit behind it, unless there is none or it says it itself.

    A word such as `yes` is measured in nothing, though the column has a unit for all rows.
    """
    is_word = not any(char.isdigit() or char == "\\" for char in answer)
    if is_word or columns_of.says_nothing_exact(unit) or str(unit).strip().lower() in NO_UNITS:
        return answer
    text = raw_rows.check_text(unit, str(column)).strip()
    if not _may_be_unit(text):
        raise RejectedError(
            f"no unit: expected what the answer is measured in in '{column}', found {text!r:.60}; "
            f"if it is another thing, ignore: [{column}]"
        )
    return answer if answer.endswith(text) else f"{answer} {text}"


def _may_be_unit(text: str) -> bool:
    """Whether a number may have this unit: words, a formula, or more words that are known units.

    `miles per hour` and `kg m / s^2` may be, `Unit 3: Fractions` of a textbook and a number not.
    """
    words = text.split()
    if any(word.strip(".:").isdecimal() for word in words):
        return False
    is_formula = not {*"/^\\"}.isdisjoint(text)
    return len(words) <= MAX_UNIT_WORDS or is_formula or parse_number(f"1 {text}") is not None


def _check_repeated(fields: Mapping[str, Any], reading: Reading) -> None:
    """Raise RejectedError where a column that repeats a turn in most rows says another thing."""
    columns = reading.columns
    asks = str(columns.question or columns.user or columns.messages)
    if reading.duplicate and not columns_of.asks_the_same([fields], asks, reading.duplicate):
        raise RejectedError(f"contradiction: '{reading.duplicate}' asks another question")
    if reading.reply and not columns_of.asks_the_same([fields], asks, reading.reply):
        raise RejectedError(
            f"contradiction: the reply in '{reading.reply}' is none of the turns in '{asks}'"
        )


def _check_reply(reply: Turn | None, solution: str | None, columns: Columns) -> None:
    """Raise RejectedError where a reply would be lost since a column of its own has another."""
    text = None if reply is None else _CALCULATOR.sub("", reply.content).strip()
    if None not in (text, solution) and text != solution:
        raise RejectedError(
            f"two replies: the conversation ends with {text!r:.40}, and "
            f"'{columns.solution or columns.assistant}' has another"
        )


def read_values(fields: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    """Field of `columns` -> what the row has; RejectedError where what is asked is not there."""
    values = dict[str, Any]()
    for key, expression in columns.used().items():
        value = columns_of.evaluate(fields, expression)
        if key in ("question", "user", "messages", "answer"):
            if value is MISSING:
                available = ", ".join(sorted(map(str, fields))) or "none"
                raise RejectedError(
                    f"missing column: '{expression}' is not among the row's columns "
                    f"({available:.200})"
                )
            if value is None:
                raise RejectedError(f"empty {key}: '{expression}' is null")
        values[key] = None if value is MISSING else value
        if key in ("solution", "assistant"):
            values[key] = _unwrap_reply(values[key], expression)
    return values


def _unwrap_reply(value: Any, expression: str) -> Any:
    """The text in a list of it alone; RejectedError for several, of which one is imitated."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        return value
    if len(value) > 1:
        raise RejectedError(
            f"several texts: expected one solution or reply in '{expression}', found "
            f"{len(value)}: {value!r:.60}; name its place under columns, as {expression}.0"
        )
    return value[0] if value else None


def read_turns(values: Mapping[str, Any], columns: Columns, ignore: Sequence[str]) -> list[Turn]:
    """The conversation, after the system message, with the reply where it stands among them."""
    key = next(key for key in ("messages", "question", "user") if key in values)
    turns = conversations.read_conversation(values[key], str(getattr(columns, key)), ignore)
    system = values.get("system")
    if system is None:
        return turns
    return conversations.add_system(turns, raw_rows.check_text(system, str(columns.system)))


def add_reply(
    turns: list[Turn], values: Mapping[str, Any], columns: Columns, ignore: Sequence[str]
) -> list[Turn]:
    """The turns with those of the reply's column, if it holds messages, or calls of tools."""
    if not columns_of.is_empty(values.get("calls")):
        text = raw_rows.check_text(values.get("assistant") or "", str(columns.assistant)).strip()
        calls = tool_calls.read_calls(values["calls"], str(columns.calls))
        return [*turns, Turn("assistant", text, calls=calls)]
    key = next((key for key in ("solution", "assistant") if values.get(key) not in (None, "")), "")
    if not isinstance(values.get(key), list | dict):
        return turns
    name = str(getattr(columns, key))
    more = conversations.read_conversation(values[key], name, ignore)
    if more[: len(turns)] == turns:
        return more
    if more[0].role not in ("assistant", "tool"):
        raise RejectedError(f"contradiction: '{name}' begins with another conversation")
    return [*turns, *more]


def read_solution(values: Mapping[str, Any], columns: Columns) -> str | None:
    """The text that SFT imitates, where it is no turn of the conversation.

    None, too, where it is the gold answer and no working: SFT would teach to leave that out.
    """
    for key in ("solution", "assistant"):
        if values.get(key) in (None, ""):
            continue
        if isinstance(values[key], list | dict) or not columns_of.is_empty(values.get("calls")):
            return None
        text = raw_rows.check_text(values[key], str(getattr(columns, key)))
        if text.strip() == str(values.get("answer")).strip() and extract_answer(text) is None:
            return None
        conversations.check_reply(text)
        return _CALCULATOR.sub("", text).strip() or None
    return None
