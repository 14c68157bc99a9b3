r"""Columns of a file with the question, answer, messages and other fields of a row.

A column is named by its name (`answer`), by a path into objects and lists
(`reward_model.ground_truth`, `answers.0`), or by a template of several: `"{Body} {Question}"`, in
which `{{` is a brace. A path through a list of objects gives the list of their values:
`choices.text`. Usual names (columns.yaml) need not be given: `recognise` finds them. They are those
of TRL, axolotl, LLaMA-Factory, ms-swift, verl, OpenRLHF and open-instruct, and of the most used
data sets.

`unread` checks the columns that are not read.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean
from string import Formatter, ascii_uppercase
from typing import Any, TypeGuard

from pydantic import field_validator

from stages.config import Params, Where, read_yaml
from stages.records.problems import BadRow
from stages.sources.containers import SPLITS, Rows
from stages.sources.quarantine import RejectedError


class ColumnNames(Params):
    """Columns by field; each a name, a path or a template."""

    @field_validator("*")
    @classmethod
    def _expression(cls, value: str | None) -> str | None:
        if value is not None:
            names_in(value)
        return value

    def used(self) -> dict[str, str]:
        """Field -> column, without those that are not given."""
        return self.model_dump(exclude_none=True)


class Columns(ColumnNames):
    """Columns of a file of problems or conversations; each a name, a path or a template."""

    question: str | None = None
    """Question: text, or a conversation that ends with the user's turn."""
    answer: str | None = None
    """Gold answer: a number, a text that is the answer, or one that ends by stating it."""
    unit: str | None = None
    """Unit of the gold answer, which is appended to it."""
    solution: str | None = None
    """Worked solution to imitate, which ends with its final answer."""
    choices: str | None = None
    """Answers to choose from; the gold answer is a letter, an index or a text of these."""
    messages: str | None = None
    """Conversation: a list of messages, the same as JSON text, or a transcript."""
    system: str | None = None
    """System message."""
    user: str | None = None
    """User's message in the form of `question`, if no answer to it can be checked."""
    assistant: str | None = None
    """Reply to imitate."""
    tools: str | None = None
    """Tools that the assistant may call: a list of their schemas, or JSON text of it."""
    calls: str | None = None
    """Calls of tools in the reply, if they are not in its message: a list, or JSON text."""
    id: str | None = None
    """Id, unique within the source; without it, the file's name and the row's number."""
    split: str | None = None
    """Split: `train`, `dev` (or `validation`) or `test`."""

    @cached_property
    def lettered_choices(self) -> list[str]:
        r"""Columns that the question lists by letters, as in `"{question}\nA. {opa}\nB. {opb}"`."""
        pairs = _LETTERED.findall(self.question or "")
        letters = "".join(letter for letter, _ in pairs)
        return [name for _, name in pairs if letters == ascii_uppercase[: len(pairs)] != "A"]


MISSING = object()
_LETTERED = re.compile(r"\b([A-Z])[).:]\s*\{([^{}]+)\}")
"""Letter before a column in a template."""
NAMES: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))
"""Content of a column -> its usual names."""
OTHER_KINDS: dict[str, str] = NAMES["other_kinds"]
"""Kind of rows that are neither problems nor conversations -> message with their right place."""
MAX_BARE_WORDS = 3
"""Largest number of words of solutions that are gold answers without a working."""
MAX_SPLIT_WORDS = 4
"""Largest number of words in the name of a split."""
MIN_STATED = 0.9
"""Share of solutions that state an answer, above which they are the gold answers, too."""
FLAN = ("inputs", "targets")
"""Columns of a prompt and its reply, perhaps in a list; without `inputs`, `targets` is anything."""
TRUE = frozenset({"true", "t", "1", "1.0", "yes", "y"})
FALSE = frozenset({"false", "f", "0", "0.0", "no", "n"})
"""Values of a flag, with `TRUE`, in lower case: tables may have only text, or 1.0 beside gaps."""
_SPLIT_AFTER = re.compile(r"[a-z\d]+_(train|test|validation)")
"""Name followed by its split, in lower case, as `askculinary_test` in SHP's `domain`."""
NOTHING = frozenset({"", "none", "null", "nan", "[]"})
VALID = frozenset({"ok", "complete", *NAMES["verdicts"]["good"]})
CHOICE_COLUMN = re.compile(NAMES["choice_column"])
"""Pattern of columns with one choice each, as `A`, `option_a`, `opa`, `sol1`."""
SYSTEM_COLUMN = re.compile(NAMES["system_column"])
"""Pattern of columns that may be a system message, as `persona` or `sys_msg`, in lower case."""


def read_flag(value: Any) -> bool | None:
    """Value of a flag, which may be a word or a digit; None: not a flag."""
    word = str(value).strip().lower()
    return True if word in TRUE else False if word in FALSE else None


def read_number(value: Any) -> float | None:
    """Finite number, also from text, since tables have only text; else None."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        return None
    with suppress(ValueError, TypeError, OverflowError):
        number = float(value)
        return number if math.isfinite(number) else None
    return None


def keep_rows(rows: Rows, where: Mapping[str, Where]) -> Rows:
    """Rows whose columns have these values, flags and numbers also as words; and bad rows.

    Raises:
        ValueError: there are rows, but none with these values.
    """
    others, kept = dict[str, Any](), False
    for row in rows:
        values = {} if isinstance(row, BadRow) else {name: find(row.fields, name) for name in where}
        if all(_is_wanted(value, where[name]) for name, value in values.items()):
            kept = kept or not isinstance(row, BadRow)
            yield row
        else:
            others = others or values
    if others and not kept:
        shown = ", ".join(
            f"{name}: {'no such column' if value is MISSING else repr(value):.40}"
            for name, value in others.items()
        )
        raise ValueError(
            f"where: expected rows of {dict(where)}, found none, and in the first {shown}. Correct "
            f"the column or its value."
        )


def _is_wanted(value: Any, wanted: Where) -> bool:
    """Whether a value is one of those wanted, or the same flag or number in another spelling.

    A null matches only null, not `false`: it may be unknown. Two texts are compared as texts: `007`
    is not `7`.
    """
    if isinstance(wanted, list):
        return any(_is_wanted(value, candidate) for candidate in wanted)
    if wanted is None:
        return value is None or value == ""
    if isinstance(wanted, bool):
        return read_flag(value) is wanted
    first, second = (to_text(each).strip().lower() for each in (value, wanted))
    are_texts = isinstance(value, str) and isinstance(wanted, str)
    if are_texts or read_number(first) is None or read_number(second) is None:
        return first == second
    return Decimal(first) == Decimal(second)


@cache
def names_in(expression: str) -> tuple[str, ...]:
    """Columns of an expression; a ValueError if a template is malformed."""
    if "{" not in expression:
        return (expression,)
    try:
        parts = list(Formatter().parse(expression))
    except ValueError as error:
        raise ValueError(
            f"expected a column or a template such as '{{a}} {{b}}', found {expression!r}: {error}"
        ) from error
    names = tuple(name for _, name, _, _ in parts if name is not None)
    if any(spec or conversion for _, _, spec, conversion in parts) or "" in names:
        raise ValueError(f"expected '{{column}}' in a template, found {expression!r}")
    return names


def root(name: str, fields: Mapping[str, Any]) -> str:
    """Column of a row with which a path begins."""
    return name if name in fields else name.partition(".")[0]


def find(fields: Mapping[str, Any], path: str) -> Any:
    """Value at a path of a row, or `MISSING`."""
    if path in fields:
        return fields[path]
    value: Any = fields
    parts = path.split(".")
    for index, part in enumerate(parts):
        value = parse_nested(value) if index else value
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            items = [find(item, ".".join(parts[index:])) for item in value]
            return MISSING if any(item is MISSING for item in items) else items
        else:
            return MISSING
    return value


def parse_json(text: str) -> Any:
    """Value of a JSON text; None if the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def parse_nested(value: Any) -> Any:
    """List or object in a JSON text; other values unchanged."""
    is_json = isinstance(value, str) and value.lstrip().startswith(("{", "["))
    parsed = parse_json(value) if is_json else value
    return parsed if isinstance(parsed, dict | list) else value


def evaluate(fields: Mapping[str, Any], expression: str) -> Any:
    """Value of an expression; `MISSING` or None if the row has none.

    In a template, missing or null values are empty, unless all are.
    """
    if "{" not in expression:
        return find(fields, expression)
    values = {name: find(fields, name) for name in names_in(expression)}
    if all(value is MISSING or value is None for value in values.values()):
        return MISSING if MISSING in values.values() else None
    parts = list[str]()
    for literal, name, _, _ in Formatter().parse(expression):
        value = None if name is None else single(values[name])
        if isinstance(value, dict | list):
            raise RejectedError(f"wrong type: '{name}' should be text and is {value!r:.60}")
        parts += [literal, "" if value is MISSING or value is None else to_text(value)]
    return "".join(parts)


def to_text(value: Any) -> str:
    """Text of a value in a template, with `true` and `false` as in JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_names(expressions: Mapping[str, str], sample: Sequence[Mapping[str, Any]]) -> None:
    """Raise a ValueError if no row of a sample has a column; an empty sample is not checked."""
    for field, expression in expressions.items():
        for name in names_in(expression) if sample else ():
            if all(find(fields, name) is MISSING for fields in sample):
                available = ColumnSample(sample).available()
                raise ValueError(f"columns.{field}: {name!r} is not among the columns: {available}")


def say_the_same(first: str, second: str) -> bool:
    """Whether two gold answers are the same number or text, or the longer states the shorter."""
    with suppress(InvalidOperation):
        return Decimal(first) == Decimal(second)
    short, long = sorted((first, second), key=len)
    return _states_text(short, long)


def _states_text(answer: str, text: str) -> bool:
    """Whether a text contains an answer as separate words."""
    answer = answer.strip()
    return re.search(rf"(?<![\w.-]){re.escape(answer)}(?!\w)", text, re.IGNORECASE) is not None


def _find_reply(fields: Mapping[str, Any]) -> str:
    """Reply of a row, or its last message if that is the assistant's; else an empty text."""
    texts = [fields.get(name) for name in NAMES["replies"]]
    for name in NAMES["message_lists"]:
        speaker, content = _read_last_message(fields.get(name))
        texts.append(None if speaker in ("user", "human", "system", "") else str(content))
    return next((text for text in texts if isinstance(text, str)), "")


@cache
def find_mark(name: str) -> str | None:
    """Key of `NAMES["marks"]` whose names match a column, or the last key of a path, or None."""
    key = name.rpartition(".")[2].lower()
    return next((mark for mark, names in NAMES["marks"].items() if re.fullmatch(names, key)), None)


def list_splits(column: str, value: Any) -> set[str]:
    """Splits `train`, `dev` and `test` that a column of splits, or a flag, names.

    A flag is `is_test: 1` or `is_train: false`; in a domain the split follows the name. A value may
    name several, as `train (no test)`, and then does not say which one it is.
    """
    mark, text = find_mark(column), str(value).strip().lower()
    flag = read_flag(text)
    if flag is not None and mark in ("held out", "trained"):
        return {"train" if flag == (mark == "trained") else "test"}
    if mark == "domain":
        match = _SPLIT_AFTER.fullmatch(text)
        text = "" if match is None else match[1]
    words = re.findall(r"[a-z]+", text.replace("held_out", "heldout"))
    named = {SPLITS[word] for word in words if word in SPLITS and len(words) <= MAX_SPLIT_WORDS}
    return {"dev" if split == "validation" else split for split in named}


def says_test(name: str, value: Any) -> bool:
    """Whether name and value of a column, or a path, exclude the row from training."""
    is_marked = find_mark(name) in ("split", "held out", "trained", "domain")
    return is_marked and not list_splits(name, value).isdisjoint(("dev", "test"))


def says_invalid(name: str, value: Any) -> bool:
    """Whether name and value of a flag, or of a word in its place, exclude the row from use.

    Examples: `problem_is_valid: Incomplete` (Numina); `deleted: true`, or a date.
    """
    mark, text, flag = find_mark(name), str(value).strip().lower(), read_flag(value)
    if flag is not None or text in NOTHING or read_number(text) is not None:
        return (mark, flag) in (("valid", False), ("deleted", True))
    is_word = name.lower() != "valid" and text not in VALID and any(map(str.isalpha, text))
    return mark == "deleted" or (mark == "valid" and is_word)


def says_nothing_exact(value: Any) -> bool:
    """Whether a unit, or a tolerance of an answer, means none: empty, 0, `false`, `none`."""
    text = str(value).strip().lower()
    return is_empty(value) or read_number(value) == 0 or text in FALSE | NOTHING


def single(value: Any) -> Any:
    """Only element of a list of one; other values unchanged."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def unwrap(value: Any) -> Any:
    """Only text of a list, or of JSON text of a list; other values unchanged.

    RejectedError for JSON text of several texts, whose speakers are unknown.
    """
    is_json = is_json_list(value)
    texts = parse_json(value) if is_json else value
    if not isinstance(texts, list) or not all(isinstance(text, str | None) for text in texts):
        return value
    if is_json and (len(texts) > 1 or texts == [None]):
        raise RejectedError(f"several texts: expected one, or messages, found {value!r:.60}")
    return single(texts)


def is_json_list(value: Any) -> TypeGuard[str]:
    """Whether it is the JSON text of a list of texts."""
    return isinstance(value, str) and value.lstrip().startswith(('["', "[null"))


def unwrap_reply(value: Any, prompt: Any) -> Any:
    """A reply without the list around it, if it is one; as JSON text, if the prompt is such text.

    Beside another prompt JSON text is what is to be imitated.
    """
    return unwrap(value) if not isinstance(value, str) or is_json_list(prompt) else value


def is_empty(value: Any) -> bool:
    """Whether a value is null, NaN, or an empty text, list or object."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or value in ("", [], {}, "[]")


class ColumnSample:
    """Sample of a file's rows, with questions about its columns."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = rows

    def values(self, expression: str) -> list[Any]:
        """Values of an expression in the rows, without missing and empty ones."""
        values = [
            evaluate(fields, expression) for fields in self.rows
            if all(find(fields, name) is not MISSING for name in names_in(expression))
        ]  # fmt: skip
        return [value for value in values if not is_empty(value)]

    def is_list(self, name: str) -> bool:
        """Whether the column has lists, but not conversations."""
        values = self.values(name)
        lists = [value for value in values if isinstance(value, list)]
        return bool(values) and len(lists) == len(values) and not any(map(is_conversation, lists))

    def is_good_or_bad(self, name: str) -> bool:
        """Whether the column labels a completion beside it with true or false, or 0 or 1."""
        values = self.values(name)
        are_flags = {str(value).lower() for value in values} <= TRUE | FALSE
        is_bool = any(isinstance(value, bool) for value in values)
        has_reply = self.first(("completion", "response", "output"), str, list) is not None
        return bool(values) and are_flags and (is_bool or has_reply)

    def are_texts(self, name: str) -> bool:
        """Whether the column has lists of at least two texts."""
        values = self.values(name)
        return bool(values) and all(
            isinstance(value, list) and len(value) > 1 and all(isinstance(x, str) for x in value)
            for value in values
        )

    def has_objects(self, name: str) -> bool:
        """Whether the column has lists of objects, whose keys are separate columns."""
        return any(isinstance(item, dict) for value in self.values(name) for item in value)

    def end_with_the_user(self, name: str) -> bool:
        """Whether lists of messages end with the user's, so that another column has the reply."""
        lists = [value for value in self.values(name) if isinstance(value, list)]
        speakers = {_read_last_message(value)[0] for value in lists if is_message(value[-1])}
        return bool(speakers) and speakers <= {"user", "human"}

    def has_steps(self, labels: str) -> bool:
        """Whether a list of flags is beside a list of as many texts that are not choices."""
        return any(
            isinstance(flags := fields.get(labels), list) and isinstance(texts, list)
            and len(texts) == len(flags) > 0 and name not in (labels, *NAMES["choices"])
            and all(isinstance(text, str) for text in texts)
            and all(read_flag(flag) is not None or str(flag) in ("-1", "+", "-") for flag in flags)
            for fields in self.rows for name, texts in fields.items()
        )  # fmt: skip

    def pair(self) -> tuple[str, str] | None:
        """Columns of two answers to compare, or None."""
        pairs = ((first, second) for first, second, *_ in NAMES["two_answers"])
        return next((pair for pair in pairs if all(map(self.values, pair))), None)

    def available(self) -> str:
        """Names of the columns."""
        names = ", ".join(dict.fromkeys(key for fields in self.rows for key in fields))
        return names if len(names) <= 300 else f"{names[:300]} ..."

    def common(self) -> dict[str, str | None]:
        """Columns that rows of every kind may have: system message, tools, id and split."""
        has_split = SPLITS.keys() & {str(value).lower() for value in self.values("split")}
        return {
            "system": self.first(NAMES["systems"], str),
            "tools": self.first(NAMES["tools"], list, str),
            "id": "id" if self.values("id") else None,
            "split": "split" if has_split else None,
        }

    def choices(self) -> str | None:
        """Column of choices (lists, objects, or JSON text of these), or None."""
        for name in NAMES["choices"]:
            values = [parse_nested(value) for value in self.values(name)]
            if values and all(isinstance(value, list | dict) for value in values):
                return name
        return None

    def unit(self) -> str | None:
        """Column of units, or None; it may be empty in all rows of the sample."""
        names = [name for name in NAMES["units"] if any(name in fields for fields in self.rows)]
        texts = (name for name in names if not self.values(name) or self.first([name], str))
        return next(texts, None)

    def first(self, expressions: Iterable[str], *kinds: type) -> str | None:
        """First expression with values of which most are of these types, or None.

        A row with a value of another type is a bad row, which is recorded with its line.
        """
        for expression in expressions:
            are_typed = [isinstance(value, kinds) for value in self.values(expression)]
            if sum(are_typed) > len(are_typed) / 2:
                return expression
        return None

    def judges_the_reply(self, name: str) -> bool:
        """Whether a column rates the reply beside it, and is not a gold answer.

        Most replies to a problem state its gold answer; few state their rating, a 4 or `bad`.
        """
        labels = ((fields.get(name), _find_reply(fields)) for fields in self.rows)
        are_stated = [
            _states_text(str(label), reply) for label, reply in labels
            if reply and isinstance(label, str | int | float) and not is_empty(label)
        ]  # fmt: skip
        return bool(are_stated) and sum(are_stated) <= len(are_stated) / 2


def recognise(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Columns of a file of problems or conversations, by their usual names.

    Raises:
        ValueError: the rows are preference pairs, step labels, code or plain text; or no name is
            known.
    """
    sample = ColumnSample(rows)
    _refuse_other_kinds(sample)
    candidates = [*NAMES["message_lists"], "prompt", "question", "input"]
    messages = next(
        (name for name in candidates if any(map(is_conversation, sample.values(name)))), None
    ) or next((name for name in NAMES["text_lists"] if sample.are_texts(name)), None)
    question = sample.first([name for name in NAMES["questions"] if name != messages], str)
    if question == "instruction" and sample.values("input"):
        question = "{instruction}\n{input}"
    calls = sample.first(NAMES["calls"], list, str)
    calls = calls if sample.first(NAMES["tools"], list, str) else None
    if question is not None and messages is None and calls is not None:
        return Columns(user=question, calls=calls, **sample.common())
    used = {messages, *names_in(question or "")}
    golds = [name for name in NAMES["golds"] if name not in used]
    if any(isinstance(value, bool) for value in sample.values("correct")):
        golds.remove("correct")  # a verdict, not an answer
    gold = sample.first(golds, str, int, float, list)
    solution = sample.first(NAMES["solutions"], str) or sample.first(("solution",), str, list)
    has_targets = question == FLAN[0] and sample.values(FLAN[1])
    if question and not (messages or gold or solution or has_targets):
        _refuse_prompts_with_answers(sample, names_in(question))
    if messages is not None and (question is None or solution is None):
        if gold is None and question is None and sample.end_with_the_user(messages):
            _refuse_prompts_with_answers(sample, [messages])
        return _of_messages(sample, messages, gold, has_question=question is not None)
    if question is None:
        raise ValueError(
            f"expected a column with a known name and texts or messages (as JSON has them, each "
            f"with a role and a content), found {sample.available()}. Say which is which, as "
            f"columns: {{question: .., answer: ..}} or {{user: .., assistant: ..}} or {{messages: "
            f"..}}, also by a path as a.b; save lists that Python printed as JSON lines or parquet."
        )
    return _of_problem(sample, question, gold, solution)


def _of_messages(
    sample: ColumnSample, messages: str, gold: str | None, *, has_question: bool
) -> Columns:
    """Columns of rows with a conversation that has the question and perhaps the reply."""
    stated = f"{messages}.1.ground_truth.value"  # of ORZ, whose assistant's turn has only this
    if len(sample.values(stated)) == len(sample.rows):
        return Columns(question=f"{messages}.0.value", answer=stated, **sample.common())
    reply = None
    if not has_question:  # otherwise it repeats a turn
        reply = sample.first([name for name in NAMES["replies"] if name != messages], str, list)
    if reply is None and gold is not None and sample.end_with_the_user(messages):
        reply = gold if _is_worked(sample.values(gold)) else None
    if reply is None:
        return Columns(messages=messages, answer=gold, **sample.common())
    problem = {"question": messages, "answer": gold, "solution": reply}
    exchange = {"user": messages, "assistant": reply}
    return Columns(**(problem if gold else exchange), **sample.common())


def _of_problem(
    sample: ColumnSample, question: str, gold: str | None, solution: str | None
) -> Columns:
    """Columns of rows with a question: problems, or single exchanges without a gold answer."""
    replies = [*NAMES["replies"], FLAN[1]] if question == FLAN[0] else NAMES["replies"]
    reply = sample.first([name for name in replies if name not in names_in(question)], str, list)
    if gold is None and solution is None:
        return Columns(user=question, assistant=reply, **sample.common())
    texts = [str(text) for text in sample.values(str(solution))]
    is_bare = all(
        len(text.split()) <= MAX_BARE_WORDS and not _states_an_answer(text) for text in texts
    )
    if gold is None and reply is None and is_bare:
        return Columns(question=question, answer=solution, **sample.common())
    if gold is None and fmean(map(_states_an_answer, texts)) < MIN_STATED:
        return Columns(user=question, assistant=solution, **sample.common())
    if solution is None and reply is None and _is_worked(sample.values(str(gold))):
        solution = gold
    return Columns(
        question=question, answer=gold or solution, solution=solution or reply,
        unit=sample.unit() if gold else None, choices=sample.choices(), **sample.common(),
    )  # fmt: skip


def _refuse_prompts_with_answers(sample: ColumnSample, used: Sequence[str]) -> None:
    """Raise a ValueError if rows have only questions and columns that look like their answers."""
    may_answer = re.compile(NAMES["answer_like"], re.IGNORECASE)
    names = [name for fields in sample.rows for name in fields if name not in used]
    unread = [name for name in names if may_answer.search(name)]
    unread += [f"{name}.{gold}" for name in names for gold in NAMES["golds"] if "." not in gold]
    unread = [name for name in dict.fromkeys(unread) if sample.values(name)]
    if unread and not any(map(sample.values, NAMES["replies"])):
        raise ValueError(
            f"the rows have a question, and no column with a known name for its answer, but "
            f"{', '.join(unread[:5])}: name them under columns (answer, choices, assistant) with "
            f"the question, or the question alone: columns: {{user: {used[0]}}}. Columns: "
            f"{sample.available()}"
        )


def _refuse_other_kinds(sample: ColumnSample) -> None:
    """Raise a ValueError, with their right place, if rows are data of another kind."""
    if pair := sample.pair():
        raise ValueError(OTHER_KINDS["pairs"].format(*pair))
    refuse_steps(sample)
    for name in (*NAMES["replies"], "completions", "responses"):
        if sample.is_list(name) and any(len(value) > 1 for value in sample.values(name)):
            raise ValueError(OTHER_KINDS["several answers"].format(name))
    is_judged = sample.choices() is None and sample.judges_the_reply("label")
    if is_judged or sample.is_good_or_bad("label") or sample.values("kto_tag"):
        raise ValueError(OTHER_KINDS["labelled completions"])
    code = [name for name in ("entry_point", "canonical_solution", "test") if sample.values(name)]
    if len(code) > 1:
        raise ValueError(OTHER_KINDS["code"].format(", ".join(code)))
    if any(map(sample.values, ("prompt.replies", "replies", "parent_id", "message_tree_id"))):
        raise ValueError(OTHER_KINDS["trees"])
    asking = (*NAMES["questions"], *NAMES["message_lists"])
    if sample.values("text") and not sample.first(asking, str, list):
        raise ValueError(OTHER_KINDS["text"].format(sample.available()))


def refuse_steps(sample: ColumnSample) -> None:
    """Raise a ValueError, with their right place, if rows are labelled reasoning steps."""
    replies = {
        str(message.get("content")) for name in NAMES["message_lists"]
        for messages in sample.values(name) if isinstance(messages, list) for message in messages
        if isinstance(message, dict) and message.get("role") == "assistant"
    }  # fmt: skip
    are_signs = bool(replies) and replies <= {"+", "-"}
    has_marker = any("\u043a\u0438" in str(text) for text in sample.values("input"))
    has_steps = sample.values("label.steps") or sample.is_list("steps") or (
        sample.values("labels") and (sample.is_list("completions") or sample.has_steps("labels"))
    )  # fmt: skip
    if are_signs or has_steps or (has_marker and sample.values("label")):
        raise ValueError(OTHER_KINDS["steps"].format(sample.available()))


_SPEAKER_KEYS = {"role", "from", "output"}
"""Keys of a message; of Capybara's exchanges, `input` and `output`."""

RESPONSE_ITEMS = ("function_call", "function_call_output", "reasoning")
"""Types of items of OpenAI's Responses API that name no role."""


def is_conversation(value: Any) -> bool:
    """Whether a value is a list of messages, the same as JSON text, or a transcript."""
    value = parse_nested(value)
    if isinstance(value, str):
        return value.lstrip().startswith("Human:") and "\nAssistant:" in value
    return isinstance(value, list) and bool(value) and all(map(is_message, value))


def is_message(value: Any) -> bool:
    """Whether a value is an object with a speaker, or an item of OpenAI's Responses API."""
    return isinstance(value, dict) and (
        not _SPEAKER_KEYS.isdisjoint(value) or value.get("type") in RESPONSE_ITEMS
    )


def _read_last_message(messages: Any) -> tuple[str, Any]:
    """Speaker, in lower case, and content of the last message of a list; of others nothing."""
    last = messages[-1] if isinstance(messages, list) and messages else None
    message = last if isinstance(last, dict) else {}
    speaker = str(message.get("role", message.get("from", ""))).lower()
    return speaker, message.get("content", message.get("value"))


def _states_an_answer(text: str) -> bool:
    return "####" in text or "\\boxed" in text or "answer is" in text.lower()


def _is_worked(values: Sequence[Any]) -> bool:
    """Whether gold answers are at the end of worked solutions, as in GSM8K and MATH."""
    texts = [value for value in values if isinstance(value, str)]
    return bool(texts) and all(_states_an_answer(text) and len(text.split()) > 2 for text in texts)
