r"""Preferences of people out of files: pairs, rated or ranked answers, and labelled completions.

| columns | what a row is |
|---|---|
| `prompt`, `chosen`, `rejected`, `probability` | a pair; P(chosen is better) is 1 where no column
| `prompt`, `a`, `b`, and `winner` or `preference` or `score_a`, `score_b` | a pair |
| `prompt`, `answers`, `scores` | a list of answers, each with its score |
| `prompt`, `answers` | a ranking, the best answer first; by its usual name only `output` |
| `prompt`, `answer`, `score` | an answer; those of one prompt are compared |
| `prompt`, `answer`, `label` | a completion that is good or bad, without a pair: for KTO |

If several rows rate the same answer, their mean counts. Several rows that compare the same two
answers become one pair, whose label is the share of votes (`preference_votes`); other columns can
contradict a pair (`pair_checks`). Each row is in a pair, or in the quarantine with its reason:
`tie`, `alone` (the only rated answer to its prompt), `merged` (another row's pair counts it too),
or what is wrong with it.

A prompt is text or a conversation that ends with the user's turn, with a `system` message of its
own or not. An answer is text, or a conversation that ends with it. Without a prompt both answers
begin with it: conversations (also transcripts: Bai et al., "Training a Helpful and Harmless
Assistant", 2022, https://arxiv.org/abs/2204.05862) share all but their last turn, and of two texts
the longest common beginning that cuts no word is the prompt, nearly as in TRL. Usual names are
found without `columns`.

Of more than two answers every two that differ in rank are a pair (Ouyang et al. 2022, section 3.5),
and of lists under `chosen` and `rejected` each of one with each of the other.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, islice, product, takewhile
from statistics import fmean, mean
from typing import Any, NamedTuple, TypeGuard, TypeVar

from stages.config import Where
from stages.records import transcripts
from stages.records.preferences import (
    Preference,
    RawLabelled,
    RawPreference,
    UnpairedExample,
)
from stages.records.problems import BadRow, Prompt, Turn
from stages.sources import columns as columns_of
from stages.sources import containers, conversations, pair_checks, raw_rows, splitting
from stages.sources.columns import MISSING, NAMES, ColumnNames, ColumnSample, read_number
from stages.sources.containers import Place, RawRow
from stages.sources.preference_votes import LabelledRow, give_probability, merge_rows, record_row
from stages.sources.quarantine import ALONE, MERGED, PARTED, TIE, RejectedError, bad_row
from stages.sources.unread import NUM_SAMPLE, UNSPACED, SourceReport, Unread

SIGNED = "preference"
"""Name of a winner, or a number around 0 where any is below it."""
RANKED = "output"
"""The list of answers whose name says that it is a ranking, the best first (LLaMA-Factory)."""
TURN = "turn"
"""Beside two conversations the number of the answers that were compared, from 1."""
MIN_SIGNED = 10
"""So many preferences, of which none is negative, are no preferences around 0."""
_COMPARES = re.compile(NAMES["comparing"], re.IGNORECASE)
FORMS = {
    "pairs": "preference pairs", "compared": "two answers with a comparison",
    "lists": "lists of answers", "rated": "answers with scores", "labelled": "labelled completions",
}  # fmt: skip
"""Form of a row -> what a reader calls it."""
FIELDS = {
    "pairs": ("chosen", "rejected", "probability"),
    "compared": ("a", "b", "winner", "preference", "score_a", "score_b"),
    "lists": ("answers", "scores", "ranks"), "rated": ("answer", "score"),
    "labelled": ("answer", "label"),
}  # fmt: skip
"""Form of a row -> its fields of `PairColumns`, beside prompt and system."""
MIN_PROMPT_WORDS = 3
"""An answer may begin with a shorter prompt, as `Hello` with `Hello`."""
_ORDER = re.compile(r"\[*([ab])\s*(>+|<+|=+)\s*(?!\1)([ab])\]*", re.IGNORECASE)
"""Both answers in order, as a judge's verdict has them: `A>B`, `[[B>>A]]`, `A=B`."""
_ANSWER_WORD = re.compile(r"^(?:response|answer|assistant|model|output|completion|option)[ _]")
"""What stands before the letter or number of an answer, as in `Response 2` and `model_a`."""


class PairColumns(ColumnNames):
    """Columns of a file of preferences; each a name, a path or a template."""

    prompt: str | None = None
    """What both answers answer; null where they begin with it."""
    system: str | None = None
    chosen: str | None = None
    rejected: str | None = None
    probability: str | None = None
    """A number from 0 to 1, P(chosen is better), or true and false."""
    a: str | None = None
    b: str | None = None
    winner: str | None = None
    """`a` or `b`, 1 or 2, or the name of the better answer's column; `tie`: neither."""
    preference: str | None = None
    """A number: below 0 a is better, above 0 b is."""
    score_a: str | None = None
    score_b: str | None = None
    answers: str | None = None
    """A list of answers."""
    scores: str | None = None
    """A number for each of the answers; without, and without ranks, the best comes first."""
    ranks: str | None = None
    """A number for each of the answers, of the best one the lowest."""
    answer: str | None = None
    """A single answer."""
    score: str | None = None
    label: str | None = None
    """true or false: the answer is good or bad."""

    @property
    def sides(self) -> tuple[str, str] | None:
        """The columns of two answers; None: a row has a list of answers, or a single one."""
        first, second = (self.chosen, self.rejected) if self.chosen else (self.a, self.b)
        return None if first is None or second is None else (first, second)

    def forms(self) -> list[str]:
        """The forms of rows of these columns; one, where they make sense."""
        forms = {
            "pairs": self.chosen and self.rejected,
            "compared": self.a and self.b
            and (self.winner or self.preference or (self.score_a and self.score_b)),
            "lists": self.answers,
            "rated": self.answer and self.score,
            "labelled": self.answer and self.label,
        }  # fmt: skip
        return [form for form, columns in forms.items() if columns]


class Answer(NamedTuple):
    """An answer with what it answers."""

    turns: tuple[Turn, ...]
    """The conversation before it."""
    plain_prompt: str
    """The same as text."""
    plain_lead: str
    text: str


@dataclass(frozen=True, slots=True)
class Context:
    """Context of a row's answers: what its columns have before them."""

    prompt: Any
    """The prompt's value; None: no column has it."""
    turns: list[Turn]
    """The same as turns."""
    system: str | None
    """The system message in a column of its own."""
    turn: float | None
    """Number of the answers that were compared, where the row says so."""
    raw: Any = None
    """The prompt as the column has it."""

    def add_system(self, turns: Sequence[Turn]) -> list[Turn]:
        """The turns after the system message; none stay none, which the caller refuses."""
        return conversations.add_system(turns, self.system) if turns else []

    def cut(self, turns: list[Turn]) -> list[Turn]:
        """The turns up to the answer that was compared.

        A row of MT-Bench has both turns of each model, and says by `turn: 1` that the first answers
        were compared. Chatbot Arena's `turn` counts all of them.
        """
        ends = [end for end, turn in enumerate(turns, start=1) if conversations.is_reply(turn)]
        is_within = self.turn is not None and 1 <= self.turn < len(ends)
        return turns[: ends[int(self.turn or 0) - 1]] if is_within else turns


class Rating(NamedTuple):
    """A row that rates an answer."""

    row: RawRow
    answer: Answer
    score: float


def recognise(rows: Sequence[Mapping[str, Any]]) -> PairColumns:
    """The columns of a file of preferences, by their usual names.

    Raises:
        ValueError: no name is known.
    """
    sample = ColumnSample(rows)
    prompt = sample.first(NAMES["prompts"], str, list)
    if prompt == "instruction" and sample.values("input"):
        prompt = "{instruction}\n{input}"
    common = {"prompt": prompt, "system": sample.first(NAMES["systems"], str)}
    if pair := sample.pair():
        if prompt is None:
            lists = [name for name in NAMES["message_lists"] if name not in pair]
            common["prompt"] = sample.first(lists, list)
        return PairColumns(**common, **_find_comparison(sample, *pair))
    answers = next((name for name in NAMES["answer_lists"]
                    if sample.is_list(name) and not sample.has_objects(name)), None)  # fmt: skip
    if answers is not None:
        folder = answers.rpartition(".")[0]
        scores, ranks = (
            sample.first([f"{folder}.{name}" if folder else name for name in names], list)
            for names in (NAMES["list_scores"], NAMES["ranks"])
        )
        if scores is None and ranks is None and answers != RANKED:
            columns_of.refuse_steps(sample)
            raise ValueError(
                f"'{answers}' holds several answers to each prompt, and no column that is known "
                f"says which is better: name it, as columns: {{prompt: {prompt}, answers: "
                f"{answers}, scores: ..}} or ranks: ..; if the best comes first, name the answers "
                f"without it. Columns: {sample.available()}"
            )
        ranks = None if scores else ranks
        return PairColumns(**common, answers=answers, scores=scores, ranks=ranks)
    singles = ["completion", "response", "output", "answer", *NAMES["message_lists"]]
    answer = sample.first(singles, str, list)
    label = next((name for name in ("label", "kto_tag") if sample.values(name)), None)
    if answer is not None and label is not None and sample.is_good_or_bad(label):
        return PairColumns(**common, answer=answer, label=label)
    score = _find_numbers(sample, NAMES["single_scores"])
    if answer is not None and score is not None:
        return PairColumns(**common, answer=answer, score=score)
    columns_of.refuse_steps(sample)
    raise ValueError(
        f"no columns of preferences have names that are known: say which are which, as columns: "
        f"{{prompt: .., chosen: .., rejected: ..}} or {{prompt: .., a: .., b: .., winner: ..}} or "
        f"{{prompt: .., answers: .., scores: ..}} or {{prompt: .., answer: .., label: ..}}. "
        f"Columns: {sample.available()}"
    )


def _find_comparison(sample: ColumnSample, first: str, second: str) -> dict[str, str | None]:
    """Columns that say which of two answers is better."""
    if [first, second, "better first"] in NAMES["two_answers"]:
        probability = "probability" if sample.values("probability") else None
        return {"chosen": first, "rejected": second, "probability": probability}
    pair: dict[str, str | None] = {"a": first, "b": second}
    for names in NAMES["compared"]:
        if all(map(sample.values, names)):
            return pair | dict(zip(("score_a", "score_b"), names, strict=True))
    strength = _find_numbers(sample, NAMES["strengths"])
    winner = sample.first(NAMES["winners"], str, int)
    winner = winner or sample.first([name for name in NAMES["winners"] if name != SIGNED], float)
    if winner is None and any(_ORDER.fullmatch(str(value)) for value in sample.values("label")):
        winner = "label"
    if winner in (None, SIGNED) and _is_signed(sample, SIGNED):
        return pair | {"preference": SIGNED}
    if winner is not None and strength is not None and not _is_signed(sample, strength):
        strength = None  # says how sure the winner is
    return pair | {"winner": winner, "preference": strength}


def _find_numbers(sample: ColumnSample, names: Iterable[str]) -> str | None:
    """The first column that holds numbers in most of its rows, perhaps as text."""
    for name in names:
        are_numbers = [read_number(value) is not None for value in sample.values(name)]
        if 2 * sum(are_numbers) > len(are_numbers):
            return name
    return None


def _is_signed(sample: ColumnSample, column: str) -> bool:
    """Whether a column has numbers below 0; tables may hold them as text."""
    return any(re.fullmatch(r"-[\d.]+", str(value).strip()) for value in sample.values(column))


def read_preferences(
    place: Place, columns: PairColumns, ignore: Sequence[str] = (),
    limit: int | None = None, *, where: Mapping[str, Where] | None = None,
    report: SourceReport | None = None,
) -> Iterator[RawPreference | RawLabelled | BadRow]:  # fmt: skip
    """The pairs or labelled completions of files or of the hub, and the rows that hold none.

    Args:
        place: File, folder, or split of the hub.
        columns: Those that are named; found by their usual names where none is.
        ignore: Columns, and keys of messages, that may be dropped.
        limit: Read the first rows alone.
        where: Column -> value, or values, by which rows are selected.
        report: Filled in with the columns that are read and the unread ones.

    Raises:
        ValueError: files or columns that are not there, columns that make no preference, or one
            that carries meaning and is not read.
    """
    where, report = where or {}, report or SourceReport(path="")
    rows = list(islice(columns_of.keep_rows(containers.open_rows(place), where), limit))
    sample = containers.sample_fields(containers.read_head(iter(rows), NUM_SAMPLE), ignore)
    if not sample:
        report.rows["unsplit"] = len(rows)
        yield from (row for row in rows if isinstance(row, BadRow))
        return
    if not columns.used():
        columns = recognise(sample)
    _check_columns(columns, sample)
    _check_signs(columns, sample)
    report.columns, report.form = columns.used(), FORMS[columns.forms()[0]]
    reader = PairReader(columns, ignore)
    # The worse answer, and either of two whose order another column decides, may be invalid
    # without harm to the pair.
    marks = columns.sides and pair_checks.find_marks(*columns.sides)
    unread = Unread(
        used=columns.used().values(), ignore=ignore, where=where,
        is_imitated=bool(columns.score or columns.label),
        lacks_prompt=_lacks_prompt(columns, sample),
        sides=(marks or ()) if columns.a else (marks or pair_checks.CHOSEN)[1:],
    )  # fmt: skip
    for row in unread.watch(rows, report):
        if isinstance(row, RawRow):
            for name, value in _find_beside(row.fields, columns):
                if name not in (*unread.used, *where):
                    unread.refuse(row, name, value, "may say which answer is better, or how much")
    read = reader.read_rating if columns.score else reader.read_row
    read_rows: Any = (row if isinstance(row, BadRow) else read(row) for row in rows)
    yield from _compare_rated(read_rows) if columns.score else merge_rows(read_rows)


def _check_columns(columns: PairColumns, sample: Sequence[Mapping[str, Any]]) -> None:
    """Raise a ValueError for columns that are not there, or that make no preference."""
    columns_of.check_names(columns.used(), sample)
    if len(columns.forms()) != 1:
        raise ValueError(
            f"columns: expected chosen and rejected, or a and b with what compares them (winner, "
            f"preference, or score_a with score_b), or answers, or an answer with its score or "
            f"label, found {', '.join(columns.used().values())}. Name one of these. Columns: "
            f"{ColumnSample(sample).available()}"
        )
    (form,) = columns.forms()
    for field, name in columns.used().items():
        if field not in ("prompt", "system", *FIELDS[form]):
            raise ValueError(
                f"columns: expected {', '.join(FIELDS[form])} for {FORMS[form]}, found also "
                f"{field}: {name}, which these do not have: remove it"
            )
    name = str(columns.score or columns.scores)
    if name.rpartition(".")[2].lower() in NAMES["ranks"]:
        raise ValueError(
            f"columns: expected a score, the higher the better, found '{name}': name it as `ranks` "
            f"with `answers`, or write the scores of single answers as numbers below 0"
        )


def _check_signs(columns: PairColumns, sample: Sequence[Mapping[str, Any]]) -> None:
    """Raise a ValueError for preferences of which none is below 0."""
    if columns.preference is None:
        return
    numbers = map(read_number, ColumnSample(sample).values(columns.preference))
    values = [value for value in numbers if value is not None]
    if len(values) >= MIN_SIGNED and max(values) > 0 <= min(values):
        raise ValueError(
            f"columns.preference: expected numbers below 0 (the first answer is better) and above "
            f"0 (the second is), found {min(values):g} to {max(values):g} in "
            f"'{columns.preference}': name a column of 1 and 2 as `winner`, one of P(the first is "
            f"better) as `probability`, with the answers as `chosen` and `rejected`."
        )


def _lacks_prompt(columns: PairColumns, sample: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the prompt is only the common beginning of two texts, in most rows."""
    if columns.prompt is not None or (sides := columns.sides) is None:
        return False
    pairs = [[columns_of.find(fields, name) for name in sides] for fields in sample]
    return 2 * sum(all(map(_is_plain, pair)) for pair in pairs) > len(pairs)


def _find_beside(fields: Mapping[str, Any], columns: PairColumns) -> Iterator[tuple[str, Any]]:
    """What a row may say of its answers under names that mean something beside them alone.

    A probability or a winner by another name, how sure the preference is, of what a score is one, a
    difference of scores where nobody knows which answer is subtracted from which, and what may
    order a ranking: a column or a key of the answers.
    """
    patterns = {
        pair_checks.STRENGTH: True, pair_checks.LABELS: True,
        pair_checks.WINNER: columns.answers is None,
        pair_checks.PROBABILITY: columns.chosen is not None and columns.probability is None,
        pair_checks.SCALE: columns.score is not None,
        pair_checks.DIFFERENCE: columns.a is not None and columns.score_a is None,
    }  # fmt: skip
    beside = {
        name: fields[name] for pattern, may_say in patterns.items() if may_say
        for name in pair_checks.find_columns(tuple(fields), pattern)
        if pattern is not pair_checks.WINNER or str(fields[name]).strip().lower() != "chosen"
    }  # fmt: skip
    if columns.answers is not None and not (columns.scores or columns.ranks):
        column = columns_of.root(columns.answers, fields)
        items = fields[column] if isinstance(fields.get(column), list) else []
        values = {name: value for name, value in fields.items() if name != column} | {
            f"{column}.{key}": value
            for item in items if isinstance(item, dict) for key, value in item.items()
        }  # fmt: skip
        beside |= {name: value for name, value in values.items() if name != columns.answers
                   and _COMPARES.search(name.rpartition(".")[2])}  # fmt: skip
    yield from ((name, value) for name, value in beside.items() if not columns_of.is_empty(value))


def _is_plain(value: Any) -> TypeGuard[str]:
    """Whether it is text, and no conversation."""
    return isinstance(value, str) and not columns_of.is_conversation(value)


def _are_texts(value: Any) -> TypeGuard[list[str]]:
    """Whether it is a filled list of texts."""
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


@dataclass(frozen=True, slots=True)
class PairReader:
    """Reads the rows of a file of preferences: pairs, lists, ratings and labelled completions."""

    columns: PairColumns
    ignore: Sequence[str] = ()
    """Columns, and keys of messages, that may be dropped."""

    def read_row(self, row: RawRow) -> LabelledRow | BadRow:
        """A row with what it says; of two answers of which it prefers neither, with both."""
        parsed = raw_rows.parse_row(row, self._read_labels)
        if not isinstance(parsed, BadRow):
            return LabelledRow(row, parsed)
        if parsed.reason.startswith(f"{TIE}:") and self.columns.sides is not None:
            with suppress(RejectedError):
                pair = self._read_two(row.fields, *self.columns.sides)
                even = _make_pair(*pair, line=row.line, file=row.file, probability=0.5)
                return LabelledRow(row, [even], parsed)
        return parsed

    def _read_labels(
        self, fields: Mapping[str, Any], line: int, file: str
    ) -> Sequence[RawPreference | RawLabelled]:
        """What a row says, in one of the forms; RejectedError where it says nothing."""
        columns, used = self.columns, self.columns.used().values()
        (form,) = columns.forms()
        if form in ("pairs", "compared"):
            pair_checks.check_tie(fields, [*self.ignore, *used])
        if form == "pairs":
            return [self._read_pair(row, line, file) for row in self._combine_answers(fields)]
        if form == "compared":
            return [self._read_comparison(fields, line, file)]
        if form == "lists":
            return self._read_list(fields, line, file)
        answer = self._read_single(fields)
        label = columns_of.evaluate(fields, str(columns.label))
        is_good, word = columns_of.read_flag(label), str(label).strip().lower()
        verdicts = columns_of.NAMES["verdicts"]
        if is_good is None and word not in verdicts["good"] + verdicts["bad"]:
            raise RejectedError(
                f"no label: '{columns.label}' should be true or false, is {label!r}"
            )
        return [
            RawLabelled(
                turns=answer.turns, plain_prompt=answer.plain_prompt, plain_lead=answer.plain_lead,
                completion=answer.text, line=line, file=file,
                desirable=word in verdicts["good"] if is_good is None else is_good,
            )
        ]  # fmt: skip

    def read_rating(self, row: RawRow) -> Rating | BadRow:
        """A single answer with its score."""

        def read(fields: Mapping[str, Any], *_: Any) -> Rating:
            answer = self._read_single(fields)
            return Rating(row, answer, _read_number(fields, self.columns.score))

        return raw_rows.parse_row(row, read)

    def _read_single(self, fields: Mapping[str, Any]) -> Answer:
        name = str(self.columns.answer)
        (answer,) = self._read_answers(fields, name)
        _check_answer(answer, name)
        return answer

    def _combine_answers(self, fields: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """The row with each of several better answers beside each of several worse ones.

        RewardBench 2 has both as lists of texts. A list that begins with the prompt is a
        conversation, and so may be two lists that share a text: these rows stay as they are.
        """
        chosen, rejected = str(self.columns.chosen), str(self.columns.rejected)
        better, worse = fields.get(chosen), fields.get(rejected)
        asks = self.columns.prompt
        prompt = None if asks is None else columns_of.evaluate(fields, asks)
        if not (_are_texts(better) and _are_texts(worse) and _is_plain(prompt)):
            return [fields]
        if prompt in (*better, *worse) or {*better} & {*worse}:
            return [fields]
        pairs = product(dict.fromkeys(better), dict.fromkeys(worse))
        return [{**fields, chosen: good, rejected: bad} for good, bad in pairs]

    def _read_pair(self, fields: Mapping[str, Any], line: int, file: str) -> RawPreference:
        """The pair that a row holds, the answer that is more likely the better one as `chosen`.

        A soft label below 1/2 says that `rejected` is better: every count of pairs ordered rightly
        takes `chosen` for the better one. RejectedError where a column is missing or malformed, the
        answers share other than all but the last turn, one is empty, both are the same, or neither
        is preferred.
        """
        sides = str(self.columns.chosen), str(self.columns.rejected)
        marks = pair_checks.find_marks(*sides)
        for words in dict.fromkeys((pair_checks.CHOSEN, marks or pair_checks.CHOSEN)):
            pair_checks.check_ratings(fields, self.ignore, words)
        pair_checks.check_differences(fields, self.ignore)
        for name in sides:
            value = columns_of.evaluate(fields, name)
            if isinstance(value, str) and value in fields.keys() - {name}:
                raise RejectedError(
                    f"no answer: '{name}' should hold an answer and is the name of a column, "
                    f"{value!r:.60}: name {{a: .., b: .., winner: {name}}} under columns"
                )
        pair = self._read_two(fields, *sides)
        probability = _read_probability(fields, self.columns.probability)
        return _make_pair(*pair, line=line, file=file, probability=probability)

    def _read_comparison(self, fields: Mapping[str, Any], line: int, file: str) -> RawPreference:
        """The pair of answers a and b, the better one first; RejectedError for a contradiction."""
        columns, sides = self.columns, (str(self.columns.a), str(self.columns.b))
        a, b = self._read_two(fields, *sides)
        leads = dict[str, float]()  # by column, above 0 where it says that a is better
        if columns.winner is not None:
            leads[columns.winner] = _read_winner(fields, columns)

        def is_needed(*names: str | None) -> bool:
            values = [columns_of.evaluate(fields, name) for name in names if name is not None]
            is_blank = any(value is MISSING or columns_of.is_empty(value) for value in values)
            return len(values) == len(names) and not (leads and is_blank)

        if is_needed(columns.preference):
            leads[str(columns.preference)] = -_read_number(fields, columns.preference)
        if is_needed(columns.score_a, columns.score_b):
            score_a, score_b = (_read_number(fields, x) for x in (columns.score_a, columns.score_b))
            leads[str(columns.score_a)] = score_a - score_b
        if max(leads.values()) > 0 > min(leads.values()):
            shown = ", ".join(f"'{name}': {columns_of.evaluate(fields, name)!r:.40}"
                              for name in leads)  # fmt: skip
            raise RejectedError(f"contradiction: they prefer different answers: {shown}")
        (lead, *_) = leads.values()
        if lead == 0:
            raise RejectedError("tie: both answers have the same score")
        if marks := pair_checks.find_marks(*(sides if lead > 0 else sides[::-1])):
            pair_checks.check_ratings(fields, self.ignore, marks)
        return _make_pair(a, b, line=line, file=file, probability=float(lead > 0))

    def _read_list(self, fields: Mapping[str, Any], line: int, file: str) -> list[RawPreference]:
        """Every pair of a list of answers that differ in score or rank."""
        columns, column = self.columns, str(self.columns.answers)
        values = columns_of.evaluate(fields, column)
        if not isinstance(values, list) or len(values) < 2:
            raise RejectedError(f"no answers: '{column}' should be a list of at least two")
        context = self._read_prompt(fields)
        answers = [self._make_answer(context, value, column) for value in values]
        scores: Any = [-float(rank) for rank in range(len(answers))]
        if (name := columns.scores or columns.ranks) is not None:
            scores = columns_of.evaluate(fields, name)
            scores = [read_number(score) for score in scores] if isinstance(scores, list) else []
            if None in scores or len(scores) != len(answers):
                raise RejectedError(f"no scores: '{name}' should be a number for each answer")
            scores = scores if columns.scores else [-rank for rank in scores]
        pairs = _compare(_average([*zip(answers, scores, strict=True)]), line, file)
        if not pairs:
            raise RejectedError("tie: no two answers differ in their score and in their text")
        return pairs

    def _read_two(
        self, fields: Mapping[str, Any], first: str, second: str
    ) -> tuple[Answer, Answer]:
        """Two answers to one prompt; RejectedError where they answer different ones."""
        a, b = self._read_answers(fields, first, second)
        if a.turns == b.turns:
            return a, b
        questions = [[turn for turn in answer.turns if turn.role == "user"] for answer in (a, b)]
        if self.columns.a is not None and questions[0] == questions[1]:
            raise RejectedError(
                f"{PARTED}: '{first}' and '{second}' ask the same, and their earlier answers "
                f"differ, so the last ones have no prompt in common"
            )
        raise RejectedError(
            f"no common prompt: '{first}' has {len(a.turns) + 1} turns and '{second}' "
            f"{len(b.turns) + 1}, and they differ before the last"
        )

    def _read_answers(self, fields: Mapping[str, Any], *names: str) -> Sequence[Answer]:
        """The answers in one column, or in two; RejectedError where one is missing or malformed."""
        context = self._read_prompt(fields)
        values = [columns_of.unwrap_reply(columns_of.evaluate(fields, name), context.raw)
                  for name in names]  # fmt: skip
        are_plain = all(map(_is_plain, values))
        if context.prompt is None and len(values) == 2 and are_plain:
            return _part_texts(context, *values)
        if context.prompt is None and isinstance(values[0], list) and _is_plain(values[-1]):
            a = self._make_answer(context, values[0], names[0])
            # The text takes the place of the last turn.
            return a, a._replace(text=raw_rows.check_text(values[-1], names[-1]))
        for name, value in zip(names, values, strict=True):
            if value is MISSING or value is None:
                raise RejectedError(f"missing answer: there is nothing in column '{name}'")
        if are_plain and _is_plain(context.prompt):
            _check_repeated(context.prompt, values, str(self.columns.prompt), names)
        return [self._make_answer(context, value, name)
                for name, value in zip(names, values, strict=True)]  # fmt: skip

    def _read_prompt(self, fields: Mapping[str, Any]) -> Context:
        """What a row's columns say before its answers."""
        asks, column = self.columns.prompt, self.columns.system
        system = MISSING if column is None else columns_of.evaluate(fields, column)
        is_empty = system is MISSING or columns_of.is_empty(system)
        system_text = None if is_empty else raw_rows.check_text(system, str(column))
        number = None
        if self.columns.a is not None and TURN not in self.ignore:
            number = read_number(fields.get(TURN))
        if asks is None:
            return Context(None, [], system_text, number)
        raw = columns_of.evaluate(fields, asks)
        prompt = columns_of.unwrap(raw)
        if prompt in (MISSING, None, "", []):
            raise RejectedError(f"no prompt: there is nothing in column {asks!r}")
        turns = conversations.read_conversation(prompt, asks, self.ignore, may_alternate=False)
        return Context(prompt, turns, system_text, number, raw)

    def _make_answer(self, context: Context, value: Any, name: str) -> Answer:
        """An answer, text or the last turn of a conversation, with the conversation before it."""
        value = columns_of.unwrap_reply(value, context.raw)
        if isinstance(value, list | dict) or columns_of.is_conversation(value):
            turns = conversations.read_conversation(value, name, self.ignore, may_end_empty=True)
            turns = conversations.join(context.turns, context.cut(turns), name)
            _check_text(turns)
            if turns[-1].role != "assistant":
                raise RejectedError("no answer: the last turn is not the assistant's")
            if not turns[-1].is_imitated:
                raise RejectedError(
                    f"weight: the answer in '{name}' has weight 0 and is not to be learned from"
                )
            return _after_turns(context.add_system(turns[:-1]), turns[-1].content)
        text = raw_rows.check_text(value, name)
        conversations.check_reply(text)
        before = context.add_system(context.turns)
        _check_text(before)
        if _is_plain(context.prompt) and len(before) == 1:
            return Answer(tuple(before), context.prompt, "", text)
        return _after_turns(before, text.strip())


def _check_repeated(prompt: str, texts: Sequence[str], asks: str, names: Sequence[str]) -> None:
    """Raise RejectedError for answers that are texts and all begin with their whole prompt.

    A template says that they are to: `chosen: "{chosen}"`.
    """
    begin_alike = all(text.strip().startswith(prompt.strip()) for text in texts)
    is_long = len(prompt.split()) >= MIN_PROMPT_WORDS
    if is_long and begin_alike and not any("{" in name for name in names):
        templates = ", ".join(f"'{{{name}}}'" for name in names)
        raise RejectedError(
            f"prompt repeated: expected what follows the prompt in {', '.join(names)}, found "
            f"texts that begin with '{asks}': write the rest alone; if answers are to repeat it, "
            f"name them as templates: {templates}"
        )


def _part_texts(context: Context, *texts: str) -> Sequence[Answer]:
    """What follows the common beginning of two texts, which is their prompt."""
    length = _count_common(*texts)
    prompt, ends = texts[0][:length], [text[length:] for text in texts]
    if not prompt.strip():
        raise RejectedError("no common prompt: the answers do not begin alike")
    before = conversations.read_text(prompt, "the common beginning", may_end_empty=False)
    for text in texts:
        conversations.check_reply(raw_rows.check_text(text, "the answers"))
    turns = context.add_system(before)
    if len(turns) > 1:
        return [_after_turns(turns, end.strip()) for end in ends]
    return [Answer(tuple(turns), prompt, "", end) for end in ends]


def _read_winner(fields: Mapping[str, Any], columns: PairColumns) -> float:
    """1 where a is the better answer, -1 where b is; RejectedError for a tie."""
    winner = str(columns_of.evaluate(fields, str(columns.winner))).strip().lower()
    if columns.winner != SIGNED:  # of which 1.0 may be a probability
        winner = winner.removesuffix(".0")  # tables with gaps hold whole numbers so
    if order := _ORDER.fullmatch(winner):
        winner = {">": order[1], "<": order[3], "=": "tie"}[order[2][0]]
    if winner in NAMES["ties"]:
        raise RejectedError(f"tie: '{columns.winner}' prefers neither answer")
    sides = str(columns.a).lower(), str(columns.b).lower()
    marks = pair_checks.find_marks(*sides)
    # response_0 is called 0
    start = 0 if "0" in (marks or re.findall(r"\d+", sides[0])) else 1
    spellings = {winner, _ANSWER_WORD.sub("", winner)}
    # The names of the columns count before their places: a may be the column response_b.
    for names in (
        (sides[:1], sides[1:]), [(mark,) for mark in marks or ()],
        (("a", str(start), "first"), ("b", str(start + 1), "second")),
    ):  # fmt: skip
        if which := [index for index, name in enumerate(names) if spellings & {*name}]:
            break
    if len(which) != 1:
        expected = f"a, b, 1, 2, {columns.a}, {columns.b} or tie"
        raise RejectedError(f"no winner: expected {expected}, found {winner!r:.40}")
    return 1.0 if which == [0] else -1.0


def _compare_rated(ratings: Iterable[Rating | BadRow]) -> Iterator[RawPreference | BadRow]:
    """Every pair of answers to one prompt, wherever their rows stand, that differ in score.

    If several rows rate the same answer, their mean counts. A row whose answer is in no pair, or
    whose rating is counted at another row's place, has a record.
    """
    rated = defaultdict[Any, dict[str, list[Rating]]](lambda: defaultdict(list))
    for rating in ratings:
        if isinstance(rating, BadRow):
            yield rating
        else:
            rated[rating.answer.turns][rating.answer.text.strip()].append(rating)
    for by_text in rated.values():
        yield from _compare_answers([*by_text.values()])


def _compare_answers(
    ratings_by_answer: Sequence[Sequence[Rating]],
) -> Iterator[RawPreference | BadRow]:
    """The pairs of answers to one prompt, and the records of rows in none."""
    first, *_ = (ratings[0] for ratings in ratings_by_answer)
    answers = _average([(rating.answer, rating.score) for ratings in ratings_by_answer
                        for rating in ratings])  # fmt: skip
    pairs = _compare(answers, first.row.line, first.row.file)
    yield from pairs
    without = f"{TIE}: all answers to its prompt have the same score"
    if len(ratings_by_answer) == 1:
        without = f"{ALONE}: the only answer to its prompt, system message included"
    for ratings in ratings_by_answer:
        place = f"line {ratings[0].row.line} of {ratings[0].row.file}"
        for number, rating in enumerate(ratings):
            if not pairs:
                yield record_row(rating.row, without)
            elif number > 0:
                what = f"the same answer as in {place}, whose score is the mean of {len(ratings)}"
                yield record_row(rating.row, f"{MERGED}: {what}")


def _average(answers: Sequence[tuple[Answer, float]]) -> list[tuple[Answer, float]]:
    """Different answers, each with the mean of its scores, exact to the last digit written."""
    scores = defaultdict[str, list[float]](list)
    first_answers = dict[str, Answer]()
    for answer, score in answers:
        text = answer.text.strip()
        scores[text].append(score)
        first_answers.setdefault(text, answer)
    exact = {text: [Fraction(repr(score)) for score in numbers] for text, numbers in scores.items()}
    return [(answer, float(mean(exact[text]))) for text, answer in first_answers.items()]


def _compare(answers: Sequence[tuple[Answer, float]], line: int, file: str) -> list[RawPreference]:
    """The pairs of answers of different scores."""
    return [
        _make_pair(*(first, second) if score > score_2 else (second, first), line=line, file=file)
        for (first, score), (second, score_2) in combinations(answers, 2)
        if score != score_2
    ]


def _make_pair(
    better: Answer, worse: Answer, *, line: int, file: str, probability: float = 1.0
) -> RawPreference:
    for name, answer in (("chosen", better), ("rejected", worse)):
        _check_answer(answer, name)
    if better.text.strip() == worse.text.strip():
        raise RejectedError(f"equal answers: both are {better.text.strip()!r:.60}")
    pair = RawPreference(
        turns=better.turns, plain_prompt=better.plain_prompt, plain_lead=better.plain_lead,
        chosen=better.text, rejected=worse.text, probability=1.0, line=line, file=file,
    )  # fmt: skip
    return give_probability(pair, probability)


def _check_answer(answer: Answer, name: str) -> None:
    """Raise RejectedError for an answer to nothing, or one that says nothing."""
    if not answer.turns or answer.turns[-1].role != "user":
        raise RejectedError("no question: the turn before the answer is not the user's")
    if not answer.text.strip():
        raise RejectedError(f"empty answer: '{name}' says nothing after the prompt")


def _read_probability(fields: Mapping[str, Any], column: str | None) -> float:
    """P(chosen is better); 1 where the file has no such column."""
    if column is None:
        return 1.0
    value = columns_of.evaluate(fields, column)
    flag, number = columns_of.read_flag(value), read_number(value)
    number = number if flag is None else float(flag)
    if number is None or not 0 <= number <= 1:
        raise RejectedError(
            f"no probability: '{column}' should be from 0 to 1 and is {value!r:.60}"
        )
    if number == 0.5:
        raise RejectedError(f"tie: '{column}' is 0.5 and prefers neither answer")
    return number


def _read_number(fields: Mapping[str, Any], column: str | None) -> float:
    value = read_number(columns_of.evaluate(fields, str(column)))
    if value is None:
        raise RejectedError(f"no score: '{column}' should be a number")
    return value


def _count_common(chosen: str, rejected: str) -> int:
    """Length of the longest common beginning that cuts no word; a space after it is not of it."""
    same = (first == second for first, second in zip(chosen, rejected, strict=False))
    length = sum(1 for _ in takewhile(bool, same))
    nexts = chosen[length : length + 1], rejected[length : length + 1]
    if any(map(_is_letter, nexts)):
        while length and _is_letter(chosen[length - 1]):
            length -= 1
    return length - chosen[:length].endswith(" ")  # the space belongs to the answers' first word


def _is_letter(character: str) -> bool:
    """Whether it is a letter or digit of a script that parts words by spaces."""
    return character.isalnum() and character < UNSPACED


def _after_turns(before: Sequence[Turn], text: str) -> Answer:
    """An answer to a conversation, which a transcript shows."""
    return Answer(tuple(before), transcripts.render_transcript(before), " ", text)


def _check_text(turns: Iterable[Turn]) -> None:
    """Raise RejectedError for turns that are not text alone."""
    if not all(turn.is_text for turn in turns):
        raise RejectedError(
            "tools: a turn calls tools, holds the result of one, or reasons, which only "
            "demonstrations may: where it may be dropped, name its key under `ignore`"
        )


RawT = TypeVar("RawT", RawPreference, RawLabelled)
RowT = TypeVar("RowT")


def exclude_openings(
    pairs: Sequence[tuple[RawT, RowT]], prompts: Iterable[Prompt]
) -> list[tuple[RawT, RowT]]:
    """The pairs of conversations that do not open as one of `prompts` does."""

    def opening(question: str) -> str:
        # Of both sides what is shown is read, since prompts hold nothing else.
        return splitting.opening(conversations.parse_question(question))

    openings = {opening(prompt.question) for prompt in prompts}
    return [pair for pair in pairs
            if opening(transcripts.render_question(pair[0].turns)) not in openings]  # fmt: skip


def split_pairs(pairs: Sequence[tuple[RawT, RowT]], heldout_share: float) -> dict[str, list[RowT]]:
    """Pairs by side, each on the side of its opening."""
    by_opening = [(splitting.opening(raw.turns), pair) for raw, pair in pairs]
    return splitting.hold_out(by_opening, heldout_share, "label_people")


def left_out_pairs(
    left_out: Iterable[tuple[RawPreference | RawLabelled, str]],
) -> list[BadRow]:
    """Records of pairs that are left out, for the quarantine file."""
    return [bad_row(raw.file, raw.line, reason, raw.plain_prompt) for raw, reason in left_out]


def describe_pairs(pairs: Sequence[Preference]) -> dict[str, int | float]:
    """Pairs, prompts, soft labels, mean tokens, and how often the longer answer is chosen.

    Of answers with as many tokens each is longer half the time.
    """
    lengths = [(len(pair.chosen_ids), len(pair.rejected_ids)) for pair in pairs]
    longer = [(chosen > rejected) + 0.5 * (chosen == rejected) for chosen, rejected in lengths]
    return {
        "pairs": len(pairs), "prompts": len({pair.id for pair in pairs}),
        "mean_probability": round(fmean(pair.probability for pair in pairs), 6),
        "mean_prompt_tokens": round(fmean(len(pair.prompt_ids) for pair in pairs), 2),
        "mean_chosen_tokens": round(fmean(chosen for chosen, _ in lengths), 2),
        "mean_rejected_tokens": round(fmean(rejected for _, rejected in lengths), 2),
        "longer_chosen_share": round(fmean(longer), 6),
    }  # fmt: skip


def describe_labelled(rows: Sequence[UnpairedExample]) -> dict[str, int | float]:
    """Completions, prompts, the share of the good ones, mean tokens."""
    return {
        "completions": len(rows), "prompts": len({row.id for row in rows}),
        "desirable_share": round(fmean(row.desirable for row in rows), 6),
        "mean_prompt_tokens": round(fmean(len(row.prompt_ids) for row in rows), 2),
        "mean_completion_tokens": round(fmean(len(row.completion_ids) for row in rows), 2),
    }  # fmt: skip
