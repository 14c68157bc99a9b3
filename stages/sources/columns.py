r"""Columns: where in a row of a file its question, its answer, its messages and the like stand.

A column is named as `answer`, with a path into objects and lists as `reward_model.ground_truth` or
`answers.0`, or as a template of several: `"{Body} {Question}"`, in which `{{` is a brace. A path
through a list of objects is the list of what each has: `choices.text`. Where the usual names are
used nothing has to be said: `recognise` finds them. The names are those of TRL, axolotl,
LLaMA-Factory, ms-swift, verl, OpenRLHF and open-instruct, and of the data sets that are most used.

What carries meaning is never dropped: a column or a key of a message that `MEANINGFUL` lists is
read, or the file is refused with its name, unless `ignore` lists it.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import cache
from statistics import fmean
from string import Formatter
from typing import Any, NamedTuple

from pydantic import field_validator

from stages.config import Params
from stages.sources.containers import SPLITS, SYSTEM
from stages.sources.quarantine import INVALID, RejectedError


class Columns(Params):
    """Columns of a file of problems or conversations; each a name, a path or a template."""

    question: str | None = None
    """What the user asks: text, or a conversation that ends with the user's turn."""
    answer: str | None = None
    """The gold answer: a number, a text that is the answer, or one that ends by stating it."""
    unit: str | None = None
    """What the gold answer is measured in; it is put behind it."""
    solution: str | None = None
    """A worked solution to imitate, which ends with its final answer."""
    choices: str | None = None
    """The answers to choose from; the gold answer is one's letter, its index or its text."""
    messages: str | None = None
    """A conversation: a list of messages, the same as JSON text, or a transcript."""
    system: str | None = None
    """The system message."""
    user: str | None = None
    """The user's message, where nothing about it can be checked; as `question`."""
    assistant: str | None = None
    """The reply to imitate."""
    tools: str | None = None
    """Tools that the assistant may call: a list of their schemas, or JSON text of it."""
    calls: str | None = None
    """Calls of tools in the reply, where they are not in its message: a list, or JSON text."""
    id: str | None = None
    """An id, unique within the source; else it is the file's name and the row's number."""
    split: str | None = None
    """`train` or `test`."""

    @field_validator("*")
    @classmethod
    def _expression(cls, value: str | None) -> str | None:
        if value is not None:
            names_in(value)
        return value

    def used(self) -> dict[str, str]:
        """Field -> column, of those that are given."""
        return {field: column for field, column in self if column is not None}


MISSING = object()
MAX_BARE_WORDS = 3
"""Solutions of so few words are gold answers without a working."""
MAX_SPLIT_WORDS = 4
"""A longer text is no name of a split, whatever its words."""
MIN_STATED = 0.9
"""Share of solutions that state an answer, above which they are the gold answers, too."""
TEXT_LISTS = ("conversations", "conversation", "dialogue", "dialog", "data")
"""Columns of lists of texts, the user's and the assistant's in turn (LIMA, UltraChat)."""
MESSAGE_LISTS = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat")
QUESTIONS = (
    "{Body} {Question}", "{body} {question}", "question.stem", "question.problem", "question",
    "question_stem", "problem", "Question", "Problem", "query", "instruction", "prompt", "user",
    "input", "inputs",
)  # fmt: skip
REPLIES = (
    "completion", "response", "output", "reply", "assistant", "Completion", "Response", "Output",
)  # fmt: skip
FLAN = ("inputs", "targets")
"""A prompt and its reply, perhaps in a list; under `targets` alone is anything."""
GOLDS = (
    "reward_model.ground_truth", "reward_spec.ground_truth", "ground_truth", "final_answer",
    "final_ans", "answerKey", "gold", "gold_answer", "expected_answer", "correct_answer", "target",
    "answer", "Answer", "correct", "label",
)  # fmt: skip
REFERENCES = ("solution", "rationale", "cot", "Solution")
SOLUTIONS = (*REFERENCES, "generated_solution")
UNITS = ("unit", "units")
CHOICES = ("question.choices", "choices", "options")
SYSTEMS = ("system", "system_prompt", "system_message")
TOOLS = ("tools", "functions", "available_tools")
CALLS = ("answers", "tool_calls", "function_calls")
PAIRED = (
    ("chosen", "rejected"), ("response_1", "response_2"), ("response_0", "response_1"),
    ("human_ref_A", "human_ref_B"), ("response_a", "response_b"), ("answer_a", "answer_b"),
    ("conversation_a", "conversation_b"), ("response1", "response2"), ("answer_0", "answer_1"),
    ("response_j", "response_k"), ("messages", "rejected_messages"),
    ("messages", "rejected_response"), ("summaries.0.text", "summaries.1.text"),
    ("preferred_output", "non_preferred_output"), ("chosen_response", "rejected_response"),
    ("accepted", "rejected"), ("response_A", "response_B"),
)  # fmt: skip
BETTER_FIRST = (
    ("chosen", "rejected"), ("response_j", "response_k"), ("messages", "rejected_messages"),
    ("messages", "rejected_response"), ("preferred_output", "non_preferred_output"),
    ("chosen_response", "rejected_response"), ("accepted", "rejected"),
)  # fmt: skip
"""Pairs of columns of which the first holds the better answer."""
MEANINGFUL = frozenset({
    "tools", "functions", "tool_calls", "function_call", "images", "image", "videos", "video",
    "audios", "audio", "weight", "weights", "train", "loss", "label", "labels", "score", "scores",
    "overall_score", "rating", "ratings", "helpfulness", "correctness", "quality", "rank",
    "preference", "winner", "system", "system_prompt", "system_message", "choices", "options",
    "context", "passage", "Body", "input", "history", "ground_truth", "answer", "final_answer",
    "answerKey", "completion", "completions", "response", "responses", "output", "chosen",
    "rejected", "messages", "conversations", "reasoning_content", "thinking", "prompt",
    "instruction", "question", "problem", "test", "tests", "entry_point", "canonical_solution",
    "solution", "kto_tag", "correct", "is_correct", "reward", "rewards", "sample_weight", "ranks",
    "rejected_response", "rejected_responses", "rejected_messages", "body", "article", "passages",
    "Passage", "Context", "ctx", "story", "support", "document", "documents", "paragraph",
    "paragraphs", "table", "tables", "pre_text", "post_text", "reward_model", "reward_spec",
    "reasoning", "complex_cot", "chain_of_thought", "loss_weight", "loss_mask", "train_on_turn",
    "instructions", "ranking", "rankings", "margin", "probability", "thought", "thoughts",
    "premise", "premises", "hypothesis", "background", "schema", "db_schema", "query",
    "distractors", "distractor1", "nums", "numbers", "persona", "developer", "developer_message",
    "hint", "hints", "lecture", "evidence", "facts", "theory", "chat_history", "dialogue_history",
    "dialogue", "dialog", "chat_template_kwargs", "custom_system_prompt",
    "conversation_history", "message_history", "previous_messages", "prev_messages",
    "previous_turns", "previous_conversation", "prefix", "prefill", "response_prefix",
    "assistant_prefix", "answer_prefix", "partial_solution", "partial_response", "previous_steps",
    "initial_reason_steps",
    "tolerance", "tol", "atol", "rtol", "error", "unit", "units",
})  # fmt: skip
"""Names of what decides how a row is to be used, or is a part of what it says; in any case."""
_MEANINGFUL = frozenset(name.lower() for name in MEANINGFUL)
_MEDIUM = re.compile(
    r"(?:decoded_)?(?:image|img|picture|figure|video|audio)s?(?:_?\d+)?"
    r"(?:_(?:path|url|file|bytes)s?)?"
)
_TOOLS = re.compile(
    r"(?:available_)?(?:tools|functions)|(?:tool|function)s?_(?:list|schema|definition|spec)s?"
)
_THOUGHTS = re.compile(
    r"(?!(?:type|kind|category|judge|judge?ment|preference|verdict|score|rating|comparison|label"
    r"|evaluation|feedback|annotation|annotator)_)(?:\w+_)?(?:reasoning|thinking|thoughts?)"
    r"(?:_(?:content|process|trajector(?:y|ies)|traces?|text|steps|chain))?(?: \(\w+\))?"
    r"|(?:\w+_)?(?:long|short)_?cot"
)
"""Columns of what a model thought before its reply, as s1K has them; a judge's reasons are none."""
_EXACT = frozenset({"tolerance", "tol", "atol", "rtol", "error", *UNITS})
"""Names of what an answer may differ by, or is measured in; nothing where it is 0 or false."""
MARKS = {
    "split": r"(?:\w+_)?split(?:_name)?|subset|partition|set|fold|phase",
    "held out": r"(?:is|in)_?(?:test(?:ing)?|eval(?:uation)?|validation|val|dev)"
    r"(?:_?(?:set|split))?|(?:is_?)?(?:held|hold)_?out(?:_?set)?",
    "trained": r"(?:is|in)_?train(?:ing)?(?:_?(?:set|split))?",
    "valid": r"(?:\w+_)?is_?valid|valid",
    "deleted": r"(?:\w+_)?is_?(?:deleted|removed|invalid)|deleted|removed|invalid",
    "domain": r"domain",
    "right": r"(?:is_)?(?:verified|correct|right|passed)|\w+_is_correct|correctness"
    r"|correctness_(?:math_verify|llama|judge|label)|verif(?:y|ication)_(?:result|passed|success)"
    r"|(?:(?:final_)?answer|response|reply|solution|output|completion|generation|judge|verifier|model"
    r"|llm)_(?:is_?)?correct",
    "wrong": r"(?:is_)?(?:incorrect|wrong)",
}
"""What a column says of its row by a word or a flag -> its name, in lower case."""
TRUE = frozenset({"true", "t", "1", "1.0", "yes", "y"})
FALSE = frozenset({"false", "f", "0", "0.0", "no", "n"})
"""What a flag may be, in lower case; tables hold text alone."""
_SPLIT_BEHIND = re.compile(r"[a-z\d]+_(train|test|validation)")
"""A name with its split behind it, in lower case, as SHP has `askculinary_test` in `domain`."""
GOOD, BAD = frozenset({"true", "1", "1.0"}), frozenset({"false", "0", "0.0"})
"""Labels of a completion, in lower case; tables with gaps hold whole numbers as 1.0."""
NOTHING = frozenset({"", "none", "null", "nan", "[]"})
_MARKED = re.compile(r"_(?:is_)?correct$")
_ANSWER_NOUN = r"(?:answer|response|reply|output|solution|completion|generation|text)s?"
_OTHER_ANSWER = re.compile(
    r"(?:model|student|user|llm|policy|baseline|candidate|predicted|generated)_"
    rf"{_ANSWER_NOUN}|pred|prediction|response|completion|output|generation"
)
"""Columns of the answer of a model or a student, in lower case."""
RIGHT = TRUE | {"correct", "right", "pass", "passed", "verified", "success"}
WRONG = FALSE | {"incorrect", "wrong", "fail", "failed", "invalid", "unverified"}
VALID = TRUE | {"valid", "ok", "correct", "pass", "passed", "complete"}
CHOICE_COLUMN = re.compile(r"(?i:options?|choices?|ending|op|sol)[ _]?(?i:[a-j]|\d)|[A-J]")
"""Columns with a choice each, as `A`, `option_a`, `opa`, `sol1`."""


@cache
def names_in(expression: str) -> tuple[str, ...]:
    """The columns of an expression; a ValueError for a template that is none."""
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


def all_names(expressions: Iterable[str]) -> Iterator[str]:
    """The columns of some expressions."""
    for expression in expressions:
        yield from names_in(expression)


def root(name: str, fields: Mapping[str, Any]) -> str:
    """The column of a row that a path begins in."""
    return name if name in fields else name.partition(".")[0]


def find(fields: Mapping[str, Any], path: str) -> Any:
    """What is at a path of a row, or `MISSING`."""
    if path in fields:
        return fields[path]
    value: Any = fields
    parts = path.split(".")
    for index, part in enumerate(parts):
        if isinstance(value, str) and index and value.lstrip().startswith(("{", "[")):
            value = parse_json(value)
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
    """The value that a text is as JSON; None where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def evaluate(fields: Mapping[str, Any], expression: str) -> Any:
    """The value of an expression, `MISSING` or None where the row has none.

    In a template what is missing or null is empty, unless all of it is.
    """
    if "{" not in expression:
        return find(fields, expression)
    values = {name: find(fields, name) for name in names_in(expression)}
    if all(value is MISSING or value is None for value in values.values()):
        return MISSING if MISSING in values.values() else None
    parts = list[str]()
    for literal, name, _, _ in Formatter().parse(expression):
        value = "" if name is None else values[name]
        if isinstance(value, dict | list):
            raise RejectedError(f"wrong type: '{name}' should be text and is {value!r:.60}")
        is_empty = value is MISSING or value is None
        parts += [literal, "" if is_empty else to_text(value)]
    return "".join(parts)


def to_text(value: Any) -> str:
    """A value as it stands in a template: `true` and `false` as JSON has them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_names(expressions: Mapping[str, str], sample: Sequence[Mapping[str, Any]]) -> None:
    """Raise a ValueError for a column that no row of a sample has, if that has any."""
    for field, expression in expressions.items():
        for name in names_in(expression) if sample else ():
            if all(find(fields, name) is MISSING for fields in sample):
                available = ", ".join(dict.fromkeys(key for fields in sample for key in fields))
                raise ValueError(
                    f"columns.{field}: {name!r} is not among the columns: {available:.300}"
                )


def find_unread(
    fields: Mapping[str, Any], expressions: Iterable[str], ignore: Sequence[str],
    *, has_gold: bool = True,
) -> Iterator[str]:  # fmt: skip
    """The columns of a row that carry meaning and are neither read nor ignored.

    Also the tools, the system message and the media beside a path into an object that holds them,
    or into a list of such objects, and a split in an object, as verl has it in `extra_info`.
    Without `has_gold` no gold answer is read: what one is measured in means nothing.
    """
    paths = [*all_names(expressions)]
    names = {root(name, fields) for name in paths}
    for name, value in fields.items():
        is_unread = name not in names and name not in ignore and not is_empty(value)
        is_unread = is_unread and (has_gold or name.lower() not in _EXACT)
        says_much = is_meaningful(name) and not _says_nothing(name, value)
        if is_unread and (says_much or says_test(name, value)):
            yield name
        if name in paths or name in ignore:
            continue
        for key, mark in _parse_object(value).items():
            path = f"{name}.{key}"
            if says_test(path, mark) and path not in (*paths, *ignore):
                yield path
    beside = [
        (f"{column}.{key}", key, value)
        for column in sorted(names - {*paths})
        for item in _objects_in(fields.get(column))
        for key, value in item.items()
    ]
    for path, key, value in beside:
        is_unread = not {path, root(path, fields)}.intersection((*ignore, *paths))
        if is_unread and not is_empty(value) and (is_context(str(key)) or key == "context"):
            yield path


def _says_nothing(name: str, value: Any) -> bool:
    """Whether a value of a column that carries meaning has none.

    A mode of Nemotron's, the name of a reward model (Magpie), a flag (`is_reasoning`), a 0.
    """
    if name == "reasoning":
        return str(value) in ("on", "off")
    if name == "reward_model":
        return isinstance(value, str) and not _parse_object(value)
    if name.lower() not in _MEANINGFUL and is_thought(name):
        return not isinstance(value, list) and len(str(value).split()) < 2
    return name.lower() in _EXACT and says_nothing_exact(value)


def _parse_object(value: Any) -> Mapping[str, Any]:
    """The object that a value is, perhaps as JSON text; an empty one where it is none."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = parse_json(value)
    return value if isinstance(value, Mapping) else {}


def find_unread_keys(fields: Mapping[str, Any], expressions: Iterable[str]) -> Iterator[str]:
    """Paths beside those that are read into an object, or into a list of objects, of a row."""
    names = [*all_names(expressions)]
    paths = [[part for part in name.split(".") if not part.isdecimal()] for name in names]
    for column in dict.fromkeys(root(name, fields) for name in names):
        objects = _objects_in(fields.get(column))
        read_keys = {path[1] for path in paths if path[0] == column and len(path) > 1}
        keys = dict.fromkeys(str(key) for item in objects for key in item)
        if read_keys and column not in names:
            yield from (f"{column}.{key}" for key in keys if key not in read_keys)


def _objects_in(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list, or the value alone if it is an object."""
    items: list[Any] = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, Mapping)]


def find_other_golds(
    fields: Mapping[str, Any], columns: Columns, ignore: Sequence[str]
) -> Iterator[str]:
    """Columns with the name of a gold answer, beside the one that is read, that say another."""
    if columns.answer is None or columns.choices is not None:  # of choices perhaps letter and text
        return
    names = [*all_names(columns.used().values()), *ignore]
    candidates = [name for name in GOLDS if name in fields and name not in names]
    gold = None
    with suppress(RejectedError):  # a bad row is recorded with its line
        gold = _gold_text(evaluate(fields, columns.answer)) if candidates else None
    for name in candidates:
        candidate = _gold_text(fields[name])
        if gold and candidate and not _say_the_same(gold, candidate):
            yield name


def _gold_text(value: Any) -> str | None:
    """A gold answer as text; None for a flag, an object and several answers."""
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    is_flag = isinstance(value, bool) or not isinstance(value, str | int | float)
    return None if is_flag or is_empty(value) else str(value).strip().lower()


def _say_the_same(first: str, second: str) -> bool:
    """Whether two gold answers are the same number or text, or the longer states the shorter."""
    with suppress(InvalidOperation):
        return Decimal(first) == Decimal(second)
    short, long = sorted((first, second), key=len)
    return _states_text(short, long)


def _states_text(answer: str, text: str) -> bool:
    """Whether a text has an answer in it, as words of its own."""
    answer = answer.strip()
    return re.search(rf"(?<![\w.-]){re.escape(answer)}(?!\w)", text, re.IGNORECASE) is not None


def _find_reply(fields: Mapping[str, Any]) -> str:
    """The reply of a row, or the last message, if it is the assistant's; else an empty text."""
    for name in (*REPLIES, *MESSAGE_LISTS):
        value = fields.get(name)
        if isinstance(value, str) and name in REPLIES:
            return value
        last = value[-1] if isinstance(value, list) and value else None
        if isinstance(last, Mapping):
            speaker = str(last.get("role", last.get("from"))).lower()
            content = str(last.get("content", last.get("value", "")))
            return "" if speaker in ("user", "human", "system") else content
    return ""


@cache
def find_mark(name: str) -> str | None:
    """The key of `MARKS` that a column, or the last key of a path, is by its name."""
    key = name.rpartition(".")[2].lower()
    return next((mark for mark, names in MARKS.items() if re.fullmatch(names, key)), None)


def says_test(name: str, value: Any) -> bool:
    """Whether a column, or a path, says that the row is not to be trained on.

    By the name of a split (`subset: validation`), also behind that of a domain, or as a flag
    (`is_test: 1`, `is_train: false`).
    """
    mark, text = find_mark(name), str(value).strip().lower()
    if mark == "trained":
        return text in FALSE
    if mark == "domain":
        return (match := _SPLIT_BEHIND.fullmatch(text)) is not None and match[1] != "train"
    if mark not in ("split", "held out"):
        return False
    words = re.findall(r"[a-z]+", text.replace("held_out", "heldout"))
    is_named = len(words) <= MAX_SPLIT_WORDS and any(
        SPLITS.get(word, "train") != "train" for word in words
    )
    return is_named or (mark == "held out" and text in TRUE)


def read_split(column: str, value: Any) -> str:
    """`train` or `test`, as a column of splits or a flag says; else what stands there."""
    text = str(value).strip().lower()
    if text in TRUE | FALSE and find_mark(column) in ("held out", "trained"):
        return "test" if says_test(column, value) else "train"
    if find_mark(column) == "domain" and (match := _SPLIT_BEHIND.fullmatch(text)):
        return SPLITS[match[1]]
    return SPLITS.get(text, str(value))


def check_valid(
    fields: Mapping[str, Any], expressions: Iterable[str], ignore: Sequence[str]
) -> None:
    """Raise RejectedError for a row of which a column that is not read says it is not to be used.

    As `problem_is_valid: No` (Numina), or `deleted: true`.
    """
    names = {root(name, fields) for name in all_names(expressions)}
    if mark := _find_mark_of_invalid(fields, {*names, *ignore}):
        raise RejectedError(
            f"{INVALID}: '{mark}' is {fields[mark]!r:.60}; such rows are kept as ignore: [{mark}]"
        )


def _find_mark_of_invalid(fields: Mapping[str, Any], ignore: Iterable[str]) -> str | None:
    """The column that says that a row is not to be used."""
    for name, value in fields.items():
        mark = find_mark(name)
        if mark not in ("valid", "deleted") or not isinstance(value, str | bool | int | float):
            continue
        text = str(value).strip().lower()
        is_word = text not in VALID | NOTHING and any(map(str.isalpha, text))
        is_invalid = mark == "valid" and (text in FALSE or (is_word and name.lower() != "valid"))
        is_number = text.replace(".", "", 1).isdigit() and text not in TRUE
        is_deleted = mark == "deleted" and text not in FALSE | NOTHING and not is_number
        if (is_invalid or is_deleted) and name not in ignore:
            return name
    return None


def says_nothing_exact(value: Any) -> bool:
    """Whether a unit, or what an answer may differ by, is none: a 0, `false`, `none`."""
    text = str(value).strip().lower()
    is_zero = text.replace(".", "", 1).isdigit() and float(text) == 0
    return is_empty(value) or is_zero or text in FALSE | NOTHING


def find_correctness(
    fields: Mapping[str, Any], reading: "Reading", ignore: Sequence[str]
) -> dict[str, bool]:
    """Columns of a row that say whether what it has to imitate is right -> whether it is.

    Where nothing is imitated only whether the row is verified counts: other words may be of an
    answer that nobody reads.
    """
    marked = [name for name in fields if find_mark(name) in ("right", "wrong")]
    if not marked:
        return {}
    columns = reading.columns
    has_reply = any((columns.solution, columns.assistant, columns.calls))
    if columns.messages is not None and not has_reply:
        has_reply = not _ends_with_the_user(find(fields, columns.messages))
    names = {root(name, fields) for name in all_names(reading.expressions())}
    verdicts = dict[str, bool]()
    for name in marked:
        if name in names or name in ignore:
            continue
        if not has_reply and not name.lower().endswith("verified"):
            continue
        text = str(fields[name]).strip().lower()
        if text not in RIGHT | WRONG or _may_be_an_answer(name, text, columns):
            continue
        if not has_reply or not _is_of_another(name, fields, names, columns):
            verdicts[name] = (text in RIGHT) == (find_mark(name) == "right")
    return verdicts


def _may_be_an_answer(name: str, text: str, columns: Columns) -> bool:
    """Whether `correct` or `incorrect` may say which answer is so, and not that something is."""
    if name.lower() in ("incorrect", "wrong"):
        return text not in ("true", "false")
    is_letter = len(text) == 1 and (text.isalpha() or columns.choices is not None)
    return name.lower() in ("correct", "right") and (is_letter or text in ("yes", "no"))


def _is_of_another(
    mark: str, fields: Mapping[str, Any], names: Iterable[str], columns: Columns
) -> bool:
    """Whether a verdict is of an answer that is not read, and that what is imitated does not state.

    As `student_answer` with `student_is_correct`; or beside a solution, which people wrote, the
    `prediction` of a model. Beside a model's reply that is what was read in it.
    """
    imitated = columns.solution or columns.assistant or columns.messages or ""
    is_written = columns.solution in REFERENCES
    subject = re.escape(_MARKED.sub("", mark.lower()))
    of_subject = re.compile(rf"{subject}_{_ANSWER_NOUN}")
    for name, value in fields.items():
        is_answer = of_subject.fullmatch(name.lower()) or (
            is_written and _OTHER_ANSWER.fullmatch(name.lower())
        )
        is_text = isinstance(value, str | int | float) and not is_empty(value)
        if is_answer and is_text and name not in names and imitated:
            return not _states_text(str(value), str(find(fields, imitated)))
    return False


def check_right(fields: Mapping[str, Any], reading: "Reading", ignore: Sequence[str]) -> None:
    """Raise RejectedError for a row that says that what it has to imitate is wrong."""
    verdicts = find_correctness(fields, reading, ignore)
    if mark := next((name for name, is_right in verdicts.items() if not is_right), None):
        raise RejectedError(
            f"{INVALID}: '{mark}' is {fields[mark]!r:.60}; such rows are imitated as "
            f"ignore: [{mark}]"
        )


def is_context(name: str) -> bool:
    """Whether a column of this name is shown to the assistant beside the messages."""
    lowered = name.lower()
    is_system = lowered in SYSTEMS or SYSTEM.fullmatch(lowered) is not None
    return (
        _TOOLS.fullmatch(lowered) is not None or is_system or _MEDIUM.fullmatch(lowered) is not None
    )


@cache
def is_meaningful(name: str) -> bool:
    """Whether what a column of this name holds may not be dropped silently."""
    lowered = name.lower()
    is_choice = CHOICE_COLUMN.fullmatch(name) is not None
    return lowered in _MEANINGFUL or is_choice or is_context(name) or is_thought(name)


def is_thought(name: str) -> bool:
    """Whether a column of this name holds what was thought before a reply."""
    return _THOUGHTS.fullmatch(name.lower()) is not None


def unwrap(value: Any) -> Any:
    """The text in JSON text of a list with it alone; other values as they are.

    RejectedError for several texts: who says which is not known.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(('["', "[null")):
        return value
    texts = parse_json(value)
    if not isinstance(texts, list) or not all(isinstance(text, str | None) for text in texts):
        return value
    if len(texts) > 1 or texts == [None]:
        raise RejectedError(f"several texts: expected one, or messages, found {value!r:.60}")
    return texts[0]


def is_empty(value: Any) -> bool:
    """Whether a value says nothing."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or value in ("", [], {}, "[]")


class ColumnSample:
    """Some rows of a file, asked which columns they have."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = rows

    def values(self, expression: str) -> list[Any]:
        """What the rows have at an expression, if anything."""
        values = [
            value
            for fields in self.rows
            if all(find(fields, name) is not MISSING for name in names_in(expression))
            and (value := evaluate(fields, expression)) is not None
        ]
        return [value for value in values if not is_empty(value)]

    def is_flag(self, name: str) -> bool:
        """Whether `correct` says that something is so, and not which answer is."""
        return name == "correct" and any(isinstance(value, bool) for value in self.values(name))

    def is_list(self, name: str) -> bool:
        """Whether the column holds lists of several answers, no conversations."""
        values = self.values(name)
        return bool(values) and all(
            isinstance(value, list) and not is_conversation(value) for value in values
        )

    def is_good_or_bad(self, name: str) -> bool:
        """Whether the column says true or false, or 0 or 1, of a completion beside it."""
        values = self.values(name)
        are_flags = {str(value).lower() for value in values} <= GOOD | BAD
        is_bool = any(isinstance(value, bool) for value in values)
        has_reply = self.first(("completion", "response", "output"), str, list) is not None
        return bool(values) and are_flags and (is_bool or has_reply)

    def are_texts(self, name: str) -> bool:
        """Whether the column holds lists of at least two texts."""
        values = self.values(name)
        return bool(values) and all(
            isinstance(value, list) and len(value) > 1 and all(isinstance(x, str) for x in value)
            for value in values
        )

    def has_objects(self, name: str) -> bool:
        """Whether the column holds lists of objects, whose keys are columns of their own."""
        return any(isinstance(item, dict) for value in self.values(name) for item in value)

    def end_with_the_user(self, name: str) -> bool:
        """Whether lists of messages end with the user's, so that the reply is elsewhere."""
        lists = [value for value in self.values(name) if isinstance(value, list) and value]
        lists = [messages for messages in lists if is_message(messages[-1])]
        return bool(lists) and all(map(_ends_with_the_user, lists))

    def gold_paths(self, names: Iterable[str]) -> list[str]:
        """The paths of gold answers in columns of objects, or of JSON text of these."""
        paths = (f"{name}.{gold}" for name in names for gold in GOLDS if "." not in gold)
        return [path for path in paths if self.values(path)]

    def are_marked(self, name: str) -> bool:
        """Whether the texts hold the marks of Math-Shepherd's steps."""
        inputs = self.values("input")
        return bool(self.values(name)) and any("\u043a\u0438" in str(text) for text in inputs)

    def pair(self) -> tuple[str, str] | None:
        """The columns of two answers to compare."""
        return next((pair for pair in PAIRED if all(map(self.values, pair))), None)

    def available(self) -> str:
        """The names of the columns."""
        names = ", ".join(dict.fromkeys(key for fields in self.rows for key in fields))
        return names if len(names) <= 300 else f"{names[:300]} ..."

    def common(self) -> dict[str, str | None]:
        """System message, tools, id and split, which rows of every kind may have."""
        has_split = SPLITS.keys() & {str(value).lower() for value in self.values("split")}
        return {
            "system": self.first(SYSTEMS, str),
            "tools": self.first(TOOLS, list, str),
            "id": "id" if self.values("id") else None,
            "split": "split" if has_split else None,
        }

    def choices(self) -> str | None:
        """The column of choices: lists, objects, or JSON text of these."""
        for name in CHOICES:
            values = [parse_json(value) if isinstance(value, str) else value
                      for value in self.values(name)]  # fmt: skip
            if values and all(isinstance(value, list | dict) for value in values):
                return name
        return None

    def unit(self) -> str | None:
        """The column of units, which the first rows may all leave empty."""
        names = [name for name in UNITS if any(name in fields for fields in self.rows)]
        texts = (name for name in names if not self.values(name) or self.first([name], str))
        return next(texts, None)

    def first(self, expressions: Iterable[str], *kinds: type) -> str | None:
        """The first expression of whose values, where they are there, most are of these types.

        A row with another one is a bad row, which is recorded with its line.
        """
        for expression in expressions:
            are_typed = [isinstance(value, kinds) for value in self.values(expression)]
            if sum(are_typed) > len(are_typed) / 2:
                return expression
        return None

    def judges_the_reply(self, name: str) -> bool:
        """Whether a column says how good the reply beside it is, and not which answer is right.

        Most replies to a problem say its gold answer; none has to say that it is a 4 or `bad`.
        """
        are_stated = [
            _states_text(str(label), reply)
            for fields in self.rows
            if not is_empty(label := fields.get(name))
            and not isinstance(label, Mapping)
            and (reply := _find_reply(fields))
        ]
        return bool(are_stated) and sum(are_stated) <= len(are_stated) / 2


class Reading(NamedTuple):
    """Which columns of a file are read."""

    columns: Columns
    duplicate: str | None = None
    """A column of conversations that begin with the question: as Numina has them beside it."""
    reply: str | None = None
    """A column that says again what a turn of the conversation says, as Magpie has it."""

    def expressions(self) -> list[str]:
        """Everything that is read."""
        repeated = [name for name in (self.duplicate, self.reply) if name is not None]
        return [*self.columns.used().values(), *repeated]


def recognise(rows: Sequence[Mapping[str, Any]]) -> Reading:
    """The columns of a file of problems or conversations, by their usual names.

    Raises:
        ValueError: they are preference pairs, step labels, code or plain text; two readings are
            possible; or no name is known.
    """
    sample = ColumnSample(rows)
    _refuse_other_kinds(sample)
    candidates = [*MESSAGE_LISTS, "prompt", "question", "input"]
    messages = next(
        (name for name in candidates if any(map(is_conversation, sample.values(name)))), None
    ) or next((name for name in TEXT_LISTS if sample.are_texts(name)), None)
    question = sample.first([name for name in QUESTIONS if name != messages], str)
    if question == "instruction" and sample.values("input"):
        question = "{instruction}\n{input}"
    calls = sample.first(CALLS, list, str) if sample.first(TOOLS, list, str) else None
    if question is not None and messages is None and calls is not None:
        return Reading(Columns(user=question, calls=calls, **sample.common()))
    used = {messages, *names_in(question or "")}
    golds = [name for name in GOLDS if name not in used and not sample.is_flag(name)]
    gold = sample.first(golds, str, int, float, list)
    solution = sample.first(SOLUTIONS, str) or sample.first(("solution",), str, list)
    has_targets = question == FLAN[0] and sample.values(FLAN[1])
    if question and not (messages or gold or solution or has_targets):
        _refuse_prompts_with_answers(sample, names_in(question))
    if messages is not None and question is not None:
        if not asks_the_same(rows, messages, question):
            raise ValueError(
                f"the rows hold a conversation in '{messages}' and a question in '{question}', "
                f"which differ: name one of them under columns. Columns: {sample.available()}"
            )
        if solution is None:  # the conversation holds the reply
            reply = sample.first([name for name in REPLIES if name not in used], str)
            is_same = reply is not None and asks_the_same(rows, messages, reply)
            columns = Columns(messages=messages, answer=gold, **sample.common())
            return Reading(columns, question, reply if is_same else None)
        return Reading(_of_problem(sample, question, gold, solution), messages)
    if messages is not None:
        if gold is None and sample.end_with_the_user(messages):
            _refuse_prompts_with_answers(sample, [messages])
        return Reading(_of_messages(sample, messages, gold))
    if question is None:
        raise ValueError(
            f"no column has a name that is known: say which is which, as columns: {{question: .., "
            f"answer: ..}} or {{user: .., assistant: ..}} or {{messages: ..}}. "
            f"Columns: {sample.available()}"
        )
    return Reading(_of_problem(sample, question, gold, solution))


def _of_messages(sample: ColumnSample, messages: str, gold: str | None) -> Columns:
    """The columns of rows with a conversation and no question beside it."""
    stated = f"{messages}.1.ground_truth.value"  # of ORZ, whose assistant says nothing else
    if len(sample.values(stated)) == len(sample.rows):
        return Columns(question=f"{messages}.0.value", answer=stated, **sample.common())
    reply = sample.first([name for name in REPLIES if name != messages], str, list)
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
    """The columns of rows with a question: problems, or single exchanges without a gold answer."""
    replies = [*REPLIES, FLAN[1]] if question == FLAN[0] else REPLIES
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


_ANSWER_NAMES = re.compile(
    r"answer|result|truth|target|spec|option|choice|^op[a-e]$|^cop$|correct|^text$|^solutions$"
    r"|input_output|test_case|^test_list$|^code$|gold|solution\b|^response\b|^gt$|expected",
    re.IGNORECASE,
)


_DESCRIBES_ANSWER = re.compile(r".*_(?:length|len|tokens|type|format|source|lang(?:uage)?|model)")
"""Names of what holds no answer, as `expected_length` or `answer_type`."""


def _refuse_prompts_with_answers(sample: ColumnSample, used: Sequence[str]) -> None:
    """A ValueError for questions alone beside columns that look like their answers."""
    names = dict.fromkeys(key for fields in sample.rows for key in fields)
    unread = [name for name in names if name not in used and _ANSWER_NAMES.search(name)
              and not _DESCRIBES_ANSWER.fullmatch(name.lower())]  # fmt: skip
    unread = [name for name in unread if sample.values(name)]
    unread += sample.gold_paths(name for name in names if name not in used)
    if unread and not any(map(sample.values, REPLIES)):
        shown = ", ".join(unread[:5])
        raise ValueError(
            f"the rows have a question, and no column whose name is known to hold its answer, but "
            f"{shown}: name them under columns (answer, choices, assistant) with the question, or "
            f"the question alone: columns: {{user: {used[0]}}}. Columns: {sample.available()}"
        )


def _refuse_other_kinds(sample: ColumnSample) -> None:
    """A ValueError that says where rows belong that are neither problems nor conversations."""
    if pair := sample.pair():
        better, worse = pair
        prompt = sample.first(QUESTIONS, str, list)
        columns = f"{{user: {prompt}, assistant: {better}}}"
        columns = columns if prompt else f"{{messages: {better}}}"
        imitate = f" To imitate the better answers: columns: {columns}, ignore: [{worse}]."
        is_better = pair in BETTER_FIRST
        raise ValueError(
            f"the rows are preference pairs ('{better}', '{worse}'): name the file in a row of "
            f"`pairs` with `by: people`.{imitate * is_better}"
        )
    refuse_steps(sample)
    ranked = [name for name in (*REPLIES, "completions", "responses") if sample.is_list(name)]
    if ranked:
        raise ValueError(
            f"'{ranked[0]}' holds several answers to each prompt: name the file in a row of "
            f"`pairs` with `by: people`, which takes ranked or scored lists."
        )
    is_judged = sample.choices() is None and sample.judges_the_reply("label")
    if is_judged or sample.is_good_or_bad("label") or sample.values("kto_tag"):
        raise ValueError(
            "the rows are completions that are labelled good or bad ('label'): name the file in a "
            "row of `pairs` with `by: people`, for a policy with the preset kto, and the labels as "
            "true or false. To imitate all of them, good or bad: ignore: [label] (or kto_tag). "
            "Where the label is the gold answer: columns: {question: .., answer: label, ..}."
        )
    code = [name for name in ("entry_point", "canonical_solution", "test") if sample.values(name)]
    if len(code) > 1:
        raise ValueError(
            f"answers are checked by running code ({', '.join(code)}), which nothing here does: "
            f"take problems with an answer that can be compared."
        )
    if any(map(sample.values, ("prompt.replies", "replies", "parent_id", "message_tree_id"))):
        raise ValueError(
            "the rows are trees of messages ('replies', 'parent_id'): write each path from the "
            "root to a leaf "
            "as a row of `messages`."
        )
    if sample.values("text") and not sample.first((*QUESTIONS, *MESSAGE_LISTS), str, list):
        raise ValueError(
            "the rows are plain text ('text') without a question: nothing is learned from text "
            "that answers nothing. Where it is a reply, name both: columns: {user: .., assistant: "
            f"text}}. Columns: {sample.available()}"
        )


def refuse_steps(sample: ColumnSample) -> None:
    """A ValueError that says where labelled reasoning steps belong, if the rows are such."""
    formats = {
        "prm800k": sample.values("label.steps"),
        "math_shepherd": sample.are_marked("label"),
        "processbench": sample.is_list("steps"),
        "stepwise": sample.values("labels") and sample.is_list("completions"),
    }
    if kind := next((kind for kind, has_steps in formats.items() if has_steps), None):
        raise ValueError(
            f"the rows are labelled reasoning steps: name the file in a row of `steps`, as "
            f"{{by: people, preset: {kind}, ..}} (format {{kind: {kind}}}), if they have the "
            f"columns of that format. Columns: {sample.available()}"
        )


_SPEAKER_KEYS = {"role", "from", "output"}
"""Keys of a message; of Capybara's exchanges, `input` and `output`."""


def is_conversation(value: Any) -> bool:
    """Whether it is a list of messages, or the same as JSON text, or a transcript."""
    if isinstance(value, str):
        text = value.lstrip()
        if text.startswith("["):
            return is_conversation(parse_json(value))
        return text.startswith("Human:") and "\nAssistant:" in text
    return isinstance(value, list) and bool(value) and all(map(is_message, value))


def is_message(value: Any) -> bool:
    """Whether it is an object that says who speaks."""
    return isinstance(value, dict) and not _SPEAKER_KEYS.isdisjoint(value)


def _ends_with_the_user(messages: Any) -> bool:
    """Whether a list of messages ends with the user's."""
    messages = parse_json(messages) if isinstance(messages, str) else messages
    last = messages[-1] if isinstance(messages, list) and messages else None
    return isinstance(last, dict) and last.get("role", last.get("from")) in ("user", "human")


def asks_the_same(rows: Sequence[Mapping[str, Any]], first: str, second: str) -> bool:
    """Whether a turn of each conversation in one of the columns is the question in the other."""
    for fields in rows:
        values = [evaluate(fields, name) for name in (first, second)]
        values = [parse_json(text) if is_conversation(text) and isinstance(text, str) else text
                  for text in values]  # fmt: skip
        turns = next((value for value in values if isinstance(value, list)), None)
        question = next((value for value in values if isinstance(value, str)), None)
        if turns is None or question is None:
            continue
        contents = [content for item in turns for content in _contents_of(item)]
        if question.strip() not in [str(content).strip() for content in contents]:
            return False
    return True


def _contents_of(message: Any) -> list[Any]:
    """What a message says; a text in place of it itself, an exchange what both sides say."""
    if not isinstance(message, dict):
        return [message]
    keys = ("content", "value", "text", "input", "output")
    return [message[key] for key in keys if key in message]


def _states_an_answer(text: str) -> bool:
    return "####" in text or "\\boxed" in text or "answer is" in text.lower()


def _is_worked(values: Sequence[Any]) -> bool:
    """Whether gold answers stand at the end of worked solutions, as in GSM8K and MATH."""
    texts = [value for value in values if isinstance(value, str)]
    return bool(texts) and all(_states_an_answer(text) and len(text.split()) > 2 for text in texts)
