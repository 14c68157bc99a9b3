r"""Unread columns of a file: they are listed, or the file is refused with the ways out.

| an unread column holds | becomes of the file |
|---|---|
| five words or more in most rows that say anything, or the same sentence in all | refused |
| messages; a schema or a call of a tool; a picture, sound or film; what Python prints | refused |
| anything under a name by which columns are found, or that guards (columns.yaml) | refused |
| `test`, or a flag that says so, under a name of splits | refused |
| a flag or a word that says that the row is not valid, or deleted | refused |
| true in some rows and false in others, beside a gold answer or a reply | refused with its shares |
| false in all rows, or a word such as `incorrect`, beside replies that are imitated | the same |
| two values, or numbers that may be scores, beside replies that are imitated | the same |
| few words of which one is a verdict, as `good` or `fail`, beside such replies | the same |
| any text, where the prompt is only what two answers share | refused |
| what is read, in part or whole; ids, dates, addresses, short names, other numbers | listed |

So the content of a column with an unknown name decides, also in an object beside its read keys, and
one level down in an object or in JSON text. Under a known name even a word is refused: it may be a
part of the question. `ignore` lists what may be dropped, `where` which rows are kept.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from stages.records.problems import BadRow
from stages.sources import columns as columns_of
from stages.sources.choices import read_choices
from stages.sources.columns import MISSING, NAMES, parse_nested, read_number
from stages.sources.containers import RawRow, Rows
from stages.sources.pair_checks import is_score, says_of_side
from stages.sources.quarantine import RejectedError
from stages.sources.raw_rows import PLACEHOLDERS
from stages.sources.splitting import normalise_question

NUM_SAMPLE = 200
"""Rows by which the columns of a file are found, and after which it is first checked."""
MIN_WORDS = 5
"""Fewest words of a text with content; a shorter one may be a name, a kind or an id."""
MIN_ROWS = 4
"""Fewest rows for a verdict on a column: in fewer it may have two values by chance."""
MAX_VALUES = 100
"""Most different values of a column that are counted."""
MAX_WORDS = 5
"""Most different words of a column of verdicts."""
MAX_ITEMS = 5
"""Longest list whose items are counted."""
REPEATED = 10
"""Rows per different value from which texts are kinds, or verdicts."""
MAX_SCORE = 100
"""Largest score: larger whole numbers are lengths, years or places."""
_BAD = frozenset(NAMES["verdicts"]["bad"])
_VERDICTS = _BAD.union(NAMES["verdicts"]["good"])
_PROMPT = "may be the prompt, of which both answers repeat only a beginning,"
_WORD = re.compile(r"[^\W\d_]+")
_LEVELS = re.compile(r"\s(?:->|=>|>|\||/|»)\s")
"""Separator of the levels of a category, as in `Mathematics -> Algebra`."""
UNSPACED = "\u0e00"
"""First letter of Thai: from there on many scripts do not separate words by spaces."""
_SENTENCE = re.compile(r"(?s).*[^\W\d_]\s+\w.*[.!?:。？！：]\W*")
_MEDIUM = re.compile(
    r"data:(?:image|audio|video)/.*|\S+\.(?:png|jpe?g|gif|webp|bmp|tiff?|mp3|wav|flac|ogg|m4a|mp4"
    r"|webm|mov|avi)(?:\?\S*)?",
    re.IGNORECASE | re.DOTALL,
)
_CONTENTS = ("content", "value", "text", "input", "output")
"""Keys of the text of a message or an exchange."""
_FINDING = ("questions", "solutions", "choices", "message_lists", "replies", "systems", "tools")
_GUARDING = frozenset(map(str.lower, NAMES["beside_question"]))
_KNOWN = frozenset(
    name.rpartition(".")[2].lower() for role in _FINDING for name in NAMES[role]
).union(_GUARDING, (name.lower() for pair in NAMES["two_answers"] for name in pair[:2]))
_GOLDS = frozenset(name for name in NAMES["golds"] if "." not in name)
_EXACT = frozenset({*NAMES["tolerances"], *NAMES["units"]})
"""Names of tolerances and units of an answer, without a meaning if the value is 0 or false."""


@dataclass(slots=True)
class _Column:
    """An unread column, or a key of an object."""

    row: RawRow
    sample: Any
    """First long text that no read column repeats, else the first value; `row`: its row."""
    num_texts: int = 0
    """Rows with such a text."""
    num_others: int = 0
    """Rows that say something shorter, other than a placeholder and what is read."""
    values: Counter[str] = field(default_factory=Counter)
    """Counts of the values in lower case."""
    num_values: int = 0
    is_number: bool = True
    most_items: int = 0
    """Items of the longest list that was counted; 0: all values are single."""

    def count_row(self, row: RawRow, value: Any, row_texts: "_ReadTexts") -> None:
        """Count a row by whether its value has a long text that no read column repeats."""
        texts = (part for part in _inside(parse_nested(value)) if isinstance(part, str))
        texts = (text for text in texts if count_words(text) >= MIN_WORDS)
        text = next((text for text in texts if not row_texts.has(text)), None)
        if text is None:
            is_placeholder = str(value).strip().lower() in PLACEHOLDERS | columns_of.NOTHING
            self.num_others += not (is_placeholder or row_texts.repeats(value))
            return
        if self.num_texts == 0:
            self.row, self.sample = row, text
        self.num_texts += 1

    def count(self, value: Any) -> None:
        """Count a value: the row's, or an item of its list."""
        text = str(value).strip().lower()
        self.num_values += 1
        if len(self.values) <= MAX_VALUES or text in self.values:
            self.values[text] += 1
        self.is_number = self.is_number and read_number(value) is not None


@dataclass(kw_only=True, slots=True)
class SourceReport:
    """Report on the reading of a source, for the terminal, the data card and the doctor."""

    path: str
    form: str = ""
    """Kind of rows: problems, conversations or prompts."""
    columns: dict[str, str] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    """Columns that are not read."""
    unread_files: list[str] = field(default_factory=list)
    """Files or splits that are neither train nor test."""
    rows: dict[str, int] = field(default_factory=dict)
    """Number of rows by split; `unsplit` if the source has no splits."""


@dataclass(kw_only=True)
class Unread:
    """The unread columns of a file, as its rows are read."""

    used: Collection[str]
    """Columns, paths and templates that are read."""
    ignore: Collection[str] = ()
    """Columns, and paths into them, that may be dropped."""
    where: Collection[str] = ()
    """Columns by which rows are kept: their values say nothing more of which are good."""
    gold: str | None = None
    """The column of the gold answer; None: nothing is compared with one."""
    choices: str | None = None
    """The column of the choices of which the gold answer is one."""
    is_imitated: bool = False
    """Whether replies are imitated, so that it counts whether they are good."""
    lacks_prompt: bool = False
    """Whether no column is the prompt, so that one of short texts may be it."""
    sides: Collection[str] = ()
    """Words of columns of an answer that may be invalid without harm to its row."""
    split: str | None = None
    """Split of the rows; a column may repeat that those of the test split are for testing."""
    _columns: dict[str, _Column] = field(default_factory=dict)
    _refused: dict[str, tuple[RawRow, Any, str]] = field(default_factory=dict)

    @cached_property
    def paths(self) -> list[str]:
        """The columns that are read."""
        return [name for each in self.used for name in columns_of.names_in(each)]

    def watch(self, rows: Iterable[RawRow | BadRow], report: SourceReport) -> Rows:
        """Rows of a split, unchanged; `report` counts them and lists unread columns.

        Raises:
            ValueError: an unread column has content; after `NUM_SAMPLE` rows and at the end.
        """
        for number, row in enumerate(rows, start=1):
            if isinstance(row, RawRow):
                self._look_at(row, report.unused)
            if number == NUM_SAMPLE:
                self._check()
            report.rows[self.split or "unsplit"] = number
            yield row
        self._check()

    def refuse(self, row: RawRow, name: str, value: Any, why: str) -> None:
        """Refuse the file for the value of a column, or of an object's key, unless ignored."""
        if not self._is_ignored(name):
            self._refused.setdefault(name, (row, value, why))

    def _is_ignored(self, name: str) -> bool:
        return name in self.ignore or name.partition(".")[0] in self.ignore

    def _look_at(self, row: RawRow, unused: list[str]) -> None:
        row_texts: _ReadTexts | None = None
        for name, value in self._list_unread(row.fields):
            if name not in self.where and name not in unused:
                unused.append(name)
            if columns_of.is_empty(value) or self._is_ignored(name):
                continue
            row_texts = row_texts or _ReadTexts(row.fields, self.paths)
            if why := self._find_meaning(row, name, value, row_texts):
                self.refuse(row, name, value, why)
            is_same = self._repeats_gold(row.fields, name, value)
            if is_same is False:
                self.refuse(row, name, value, f"says another answer than '{self.gold}'")
            if is_same is not None and self.choices is not None:
                continue
            for path, part in _list_parts(name, value).items():
                if path not in self.ignore and not columns_of.is_empty(part):
                    column = self._columns.setdefault(path, _Column(row, part))
                    column.count_row(row, part, row_texts)
                    if is_same is None:
                        self._count(row, path, part, column)

    def _repeats_gold(self, fields: Mapping[str, Any], name: str, value: Any) -> bool | None:
        """Whether a second gold answer is the row's, or the same choice; None: it is not one."""
        if self.gold is None or name not in _GOLDS or name in self.where:
            return None
        with suppress(RejectedError):  # a bad row is recorded with its line
            gold = columns_of.evaluate(fields, self.gold)
            text, other = _gold_text(gold), _gold_text(value)
            if text is None or other is None:
                return None
            listed = MISSING if self.choices is None else columns_of.evaluate(fields, self.choices)
            if listed is MISSING or listed is None:
                return columns_of.say_the_same(text, other)
            choices = read_choices(listed, str(self.choices))
            golds, others = (choices.read_gold(each).values() for each in (gold, value))
            return not {*golds}.isdisjoint(others)
        return None

    def _count(self, row: RawRow, path: str, part: Any, column: _Column) -> None:
        """Count a single value, or each item of a short list."""
        items = part if isinstance(part, list) and len(part) <= MAX_ITEMS else [part]
        if not all(isinstance(item, str | bool | int | float) for item in items):
            return
        if isinstance(part, list):
            column.most_items = max(column.most_items, len(part))
        elif self.split != "test" and columns_of.says_test(path, part):
            self.refuse(row, path, part, "says that the row is not to be trained on")
        elif path in self.where or says_of_side(path, self.sides):
            pass
        elif columns_of.says_invalid(path, part):
            others = "true" if columns_of.find_mark(path) == "valid" else "[false, null]"
            others = f"where: {{{path}: {others}}} keeps rows that say so"
            self.refuse(row, path, part, f"says that the row is not valid ({others})")
        for item in items:
            column.count(item)

    def _list_unread(self, fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Columns of which nothing is read, and unread keys of objects in the others."""
        roots = {columns_of.root(path, fields) for path in self.paths}
        for name, value in fields.items():
            if name not in roots:
                yield name, value
            elif name not in self.paths:
                # The column and the keys of each path, without places in lists; "": all of it.
                paths = ([part for part in path.split(".") if not part.isdecimal()]
                         for path in self.paths)  # fmt: skip
                keys = {[*path, ""][1] for path in paths if path[0] == name}
                for item in value if isinstance(value, list) else [parse_nested(value)]:
                    for key, part in item.items() if isinstance(item, Mapping) else ():
                        if key not in keys:
                            yield f"{name}.{key}", part

    def _find_meaning(
        self, row: RawRow, name: str, value: Any, row_texts: "_ReadTexts"
    ) -> str | None:
        """Reason to refuse a file because of a single value, or None."""
        key, is_column, parsed = name.rpartition(".")[2], name in row.fields, parse_nested(value)
        lowered, is_gold = key.lower(), key in _GOLDS and is_column and name not in self.where
        if lowered in _EXACT and self.gold is not None:
            return None if columns_of.says_nothing_exact(value) else "bears on the gold answer"
        if is_printed(value):
            return f"holds {PRINTED}"
        is_asking = self.lacks_prompt and any(map(_may_ask, _inside(parsed)))
        if is_asking and not row_texts.repeats(parsed):
            return _PROMPT
        is_known = lowered in _KNOWN or (is_gold and self.gold is None)
        words = lowered.replace(" ", "_")
        is_known |= is_column and columns_of.SYSTEM_COLUMN.fullmatch(words) is not None
        if read_number(value) is not None or columns_of.read_flag(value) is not None:
            is_known = lowered in _GUARDING  # else an id, or one flag of many
        is_known |= columns_of.CHOICE_COLUMN.fullmatch(key) is not None
        if is_known and not row_texts.repeats(parsed):
            return "has a name by which columns are found"
        parts = [*_inside(parsed)]
        why = next((why for why, is_such in _KINDS.items() if any(map(is_such, parts))), None)
        return None if why == "holds messages" and row_texts.repeats(parsed) else why

    def _check(self) -> None:
        """Raise the ValueError that names every column that is refused."""
        refused, shares = dict(self._refused), list[str]()
        for name, column in self._columns.items():
            if name in refused or name in self.where:
                continue
            if column.num_texts > column.num_others or _is_sentence(column):
                refused[name] = (column.row, column.sample, "holds text")
            elif counts := self._weigh(name, column):
                refused[name] = (column.row, column.sample, "may say which rows are good")
                shares.append(_show_share(name, column, counts))
        if not refused:
            return
        (row, value, why), *_ = refused.values()
        names, shown = list(refused), ", ".join(refused)
        field = "prompt" if why == _PROMPT else "<field>"
        chosen = f" Keep rows by it ({'; '.join(shares)})." if shares else ""
        several = "" if len(names) == 1 else f", as do or may {', '.join(names[1:])}"
        raise ValueError(
            f"{row.file}, row {row.line}: '{names[0]}' {why} and is not read ({value!r:.60})"
            f"{several}. Read it as columns: {{.., {field}: {names[0]}}}, also as a part of a "
            f'template, as "{{{names[0]}}} {{<another column>}}".{chosen} What may be dropped: '
            f"ignore: [{shown}]. What is read: {', '.join(dict.fromkeys(self.paths))}."
        )

    def _weigh(self, name: str, column: _Column) -> list[tuple[str, int]]:
        """Values of a flag or a score that may decide which rows are good, with their counts.

        The rarest comes first, of a flag false; empty: the column decides nothing.
        """
        counts = column.values.most_common()[::-1]
        flags = Counter[bool | None]()
        for value, count in counts:
            flags[columns_of.read_flag(value)] += count
        is_mixed = (
            flags.keys() > {True, False} and len(counts) <= MAX_WORDS and not column.is_number
        )
        if (is_mixed or flags.keys() == {True, False}) and (self.is_imitated or self.gold):
            return [("false", flags[False]), ("true", flags[True])]
        if not self.is_imitated or not counts:
            return []
        if column.is_number:
            numbers = [float(value) for value, _ in counts]
            is_whole = all(map(float.is_integer, numbers))
            are_ids = is_whole and (len(counts) == column.num_values or len(counts) > MAX_VALUES)
            is_large = max(map(abs, numbers)) > (MAX_SCORE if is_whole else 1e6)
            is_other = (are_ids or is_large) and not is_score(name.rpartition(".")[2])
            return [] if is_other or len(counts) < 2 else counts
        are_bad = all(word in _BAD or columns_of.read_flag(word) is False for word in column.values)
        are_two = len(counts) == 2 and column.num_values >= MIN_ROWS and column.most_items < 2
        is_verdict = len(counts) > 1 and _has_verdict(column)
        return counts if are_bad or are_two or is_verdict else []


class _ReadTexts:
    """Texts of the parts of a row that are read."""

    def __init__(self, fields: Mapping[str, Any], paths: Sequence[str]) -> None:
        values = (columns_of.find(fields, path) for path in paths)
        leaves = (text for value in values if value is not MISSING for text in _leaves(value))
        self.texts = {normalise_question(text) for text in leaves}
        self.everything = "\n".join(self.texts)

    def has(self, text: str) -> bool:
        """Whether a text is a part of these texts, except for white space and case."""
        return normalise_question(text) in self.everything

    def repeats(self, value: Any) -> bool:
        """Whether these texts have all texts of a value, the short ones as a whole."""
        texts = [normalise_question(text) for text in _leaves(value)]
        return all(text in self.texts or (count_words(text) >= MIN_WORDS and self.has(text))
                   for text in texts)  # fmt: skip


def count_words(text: str) -> int:
    """Number of words of a text, or of a category's longest level; 0 for an id."""
    parts = [part for part in _LEVELS.split(text) if len(part.split()) > 2]
    longest = max((len(_WORD.findall(part)) for part in parts), default=0)
    return longest + sum(character >= UNSPACED for character in text) // 2


PRINTED = (
    "a list or an object as Python prints it: save the file as JSON lines or parquet, where it "
    "keeps its type"
)


def is_printed(value: Any) -> bool:
    """Whether it is the text of a list or object as Python prints it, not JSON."""
    if not isinstance(value, str) or not re.match(r"\s*(?:\{\s*'|\[\s*['{\[])", value):
        return False
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        is_json = columns_of.parse_json(value) is not None
        return not is_json and isinstance(ast.literal_eval(value.strip()), list | dict)
    return False


def _is_sentence(column: _Column) -> bool:
    """Whether a column says the same sentence in all rows."""
    is_single = len(column.values) == 1 and column.most_items == 0
    return is_single and _SENTENCE.fullmatch(next(iter(column.values))) is not None


def _may_ask(value: Any) -> bool:
    """Whether it is a text that may be a prompt, as no number, flag, address or id is."""
    if not isinstance(value, str) or columns_of.read_flag(value) is not None:
        return False
    is_id = len(value.split()) < 2 and re.search(r"[\d_/@]", value) is not None
    return not is_id and any(map(str.isalpha, value)) and read_number(value) is None


def _has_verdict(column: _Column) -> bool:
    """Whether one of a few words, each repeated, is a flag or says that something is right or not.

    `no` among codes of two or three letters is a language.
    """
    words = {*column.values}
    if len(words) > MAX_WORDS or REPEATED * len(words) > column.num_values:
        return False
    flags = {word for word in words if columns_of.read_flag(word) is not None}
    are_long = all(len(word) > 3 for word in words - flags)
    has_flag = any(len(word) > 2 or are_long for word in flags)
    judges = any(not _VERDICTS.isdisjoint(_WORD.findall(word)) for word in words)
    return has_flag or judges


def _show_share(name: str, column: _Column, counts: Sequence[tuple[str, int]]) -> str:
    """Text with the share of a column's rarest value, and the rows that may be kept by it.

    Of two values both are named: `true` is good of `resolved`, and bad of `truncated`.
    """
    counted = "rows" if column.most_items < 2 else "items"
    share = f"{name} is {counts[0][0]} in {counts[0][1]} of {column.num_values} {counted}"
    are_two = len(counts) == 2 and column.most_items < 2
    values = [value for value, _ in counts[::-1]] if are_two else [".."]
    path = f"{name}{'.0' * (column.most_items > 0)}"
    return f"{share}: where: " + " or ".join(f"{{{path}: {value}}}" for value in values)


def _list_parts(name: str, value: Any) -> Mapping[str, Any]:
    """The value, or the values of an object, with their paths."""
    parsed = parse_nested(value)
    is_filled = isinstance(parsed, Mapping) and parsed
    return {f"{name}.{key}": part for key, part in parsed.items()} if is_filled else {name: value}


def _inside(value: Any) -> Iterator[Any]:
    """The value and everything in it."""
    yield value
    parts = value.values() if isinstance(value, Mapping) else value
    for part in parts if isinstance(value, Mapping | list) else ():
        yield from _inside(part)


def _is_medium(value: Any) -> bool:
    if isinstance(value, Mapping):
        return not value.keys().isdisjoint({"bytes", "array", "sampling_rate"})
    is_text = isinstance(value, str)
    return isinstance(value, bytes) or (is_text and _MEDIUM.fullmatch(value) is not None)


def _is_schema(value: Any) -> bool:
    is_named = isinstance(value, Mapping) and isinstance(value.get("name"), str)
    keys = {"parameters", "arguments", "input_schema", "inputSchema"}
    return is_named and not keys.isdisjoint(value)


_KINDS: dict[str, Callable[[Any], bool]] = {
    "holds pictures, sound or film": _is_medium, "holds schemas or calls of tools": _is_schema,
    "holds messages": columns_of.is_conversation,
}  # fmt: skip
"""Reason why a value has content -> test of a part of it."""


def _leaves(value: Any) -> Iterator[str]:
    """Texts, numbers and flags in a value; of messages their contents."""
    value = parse_nested(value)
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, Mapping):
        is_message = columns_of.is_message(value)
        for key, part in value.items():
            if not is_message or key in _CONTENTS or not isinstance(part, str):
                yield from _leaves(part)
    elif not columns_of.is_empty(value):
        yield str(value)


def _gold_text(value: Any) -> str | None:
    """A gold answer as text; None for a flag, an object and several answers."""
    value = columns_of.single(value)
    is_flag = isinstance(value, bool) or not isinstance(value, str | int | float)
    return None if is_flag or columns_of.is_empty(value) else str(value).strip().lower()
