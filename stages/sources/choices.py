"""Multiple choice: choices in the prompt, and the letter of the right one as gold answer."""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from stages.records.problems import Turn
from stages.sources import columns, raw_rows
from stages.sources.quarantine import RejectedError

_LABELLED = re.compile(r"\(?([A-Za-z])[).:]\s*")
GoldForm = Literal["label", "text", "index", "index alone"]
"""Form of a column's gold answers; an index counts from 0. `index alone`: not also a text."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Answers to choose from; in the prompt they are (A), (B), ..., whatever the file's labels."""

    labels: tuple[str, ...]
    """Labels of the file: letters, or digits."""
    texts: tuple[str, ...]
    are_labelled: bool
    """Whether the file has labels, so that a gold answer equal to a label is one."""

    def ask(self, turn: Turn) -> Turn:
        """User's turn with a line for each choice."""
        letters = string.ascii_uppercase
        lines = [f"({letters[index]}) {text}" for index, text in enumerate(self.texts)]
        return replace(turn, content="\n".join([turn.content, *lines]))

    def find_label(self, text: str) -> int | None:
        """Index of the choice with this label, bare or before its text, perhaps in lower case."""
        label, match = text.strip("().: "), _LABELLED.match(text)
        if match is not None and (rest := text[match.end() :]) in self.texts:
            index = self.find_label(match[1])
            return index if index is not None and self.texts[index] == rest else None
        if label not in self.labels and self.find_text(text) is None:
            label = label.upper()
        return self.labels.index(label) if label in self.labels else None

    def find_text(self, text: str) -> int | None:
        """Index of the only choice with this text."""
        return self.texts.index(text) if self.texts.count(text) == 1 else None

    def read_gold(self, gold: Any) -> dict[GoldForm, int]:
        """Each form that a gold answer may have -> index of its choice in that form."""
        gold = columns.single(gold)
        # pandas turns 1 into 1.0 in a column with a null.
        is_whole = isinstance(gold, float) and gold.is_integer() and str(gold) not in self.texts
        text = str(int(gold) if is_whole else gold).strip()
        is_index = text.isdecimal() and int(text) < len(self.texts)
        indices: dict[GoldForm, int | None] = {
            "label": self.find_label(text), "text": self.find_text(text),
            "index": int(text) if is_index else None,
        }  # fmt: skip
        return {form: index for form, index in indices.items() if index is not None}

    def find_letter(self, gold: Any, counts: Mapping[GoldForm, int]) -> str:
        """Letter of the gold answer, in the form that most gold answers of its column can have.

        Labels of the file come first. If a gold answer is both an index and a text, of different
        choices: an integer is an index if any of its column is only an index; a text of digits is a
        text if none is, since a stray one must not shift all others. RejectedError if that decides
        nothing, or if two forms that give different choices are equally frequent.
        """
        indices = self.read_gold(gold)
        if self.are_labelled and "label" in indices:
            return string.ascii_uppercase[indices["label"]]
        if not indices:
            raise RejectedError(
                f"no choice: expected the letter, index (from 0) or text of one of "
                f"{len(self.texts)} choices, found {gold!r:.60}"
            )
        if "text" in indices and indices["text"] != indices.get("index", indices["text"]):
            is_text = isinstance(columns.single(gold), str)
            has_index = "index alone" in counts
            if is_text != has_index:
                del indices["index" if is_text else "text"]
            counts = {}
        most = max(counts.get(form, 0) for form in indices)
        indices = {form: index for form, index in indices.items() if counts.get(form, 0) == most}
        if len({*indices.values()}) > 1:
            raise RejectedError(
                f"ambiguous choice: {gold!r:.60} may be {' and '.join(indices)} of different ones "
                f"of {self.texts!r:.60}: write the letters (A, B, ..) of the right choices"
            )
        return string.ascii_uppercase[next(iter(indices.values()))]


def read_choices(value: Any, column: str) -> Choices:
    """Choices of a row.

    A list of texts, perhaps with letters before them; `{"text": [...], "label": [...]}`; a list of
    such objects, or of others with one text beside their letters; an object from letters to texts;
    or JSON text of these. RejectedError for anything else.
    """
    labels: list[Any] = []
    value = columns.parse_nested(value)
    if isinstance(value, Mapping) and isinstance(value.get("text"), list):
        texts, labels = value["text"], value.get("label", [])
    elif isinstance(value, Mapping):
        labels, texts = list(value), list(value.values())
        while texts and texts[-1] is None:  # columns of objects give each the keys of all
            del labels[-1], texts[-1]
    else:
        items = [columns.single(item) for item in value] if isinstance(value, list) else []
        are_objects = bool(items) and all(isinstance(item, dict) for item in items)
        labels, texts = _read_objects(items, column) if are_objects else ([], items)
    if not 1 < len(texts) <= len(string.ascii_uppercase):
        raise RejectedError(f"no choices: '{column}' should be a list of choices, is {value!r:.60}")
    if any(text is None for text in texts):
        raise RejectedError(f"no choices: one of those in '{column}' is null")
    if odd := next((text for text in texts if isinstance(text, list | dict)), None):
        raise RejectedError(f"no choices: one of those in '{column}' is no text: {odd!r:.60}")
    texts = [raw_rows.check_text(str(text), column).strip() for text in texts]
    letters = [_LABELLED.match(text) for text in texts]
    expected = string.ascii_uppercase[: len(texts)]
    if all(letters) and "".join(match[1] for match in letters if match).upper() == expected:
        texts = [text[match.end() :] for text, match in zip(texts, letters, strict=True) if match]
        labels = list(expected)
    are_labelled = any(labels)
    labels = [str(label).strip() for label in labels] if are_labelled else list(expected)
    return Choices(tuple(labels), tuple(texts), are_labelled)


def check_listed(answer: str, names: Sequence[str], fields: Mapping[str, Any]) -> None:
    """Raise RejectedError for a gold answer that is an index of choices in columns of these names.

    The question lists these columns by their letters (`Columns.lettered_choices`).
    """
    texts = [str(columns.find(fields, name)) for name in names]
    is_number = columns.read_number(answer) in range(len(texts) + 1)  # from 0, or from 1
    if texts and is_number and not any(columns.say_the_same(answer, text) for text in texts):
        raise RejectedError(
            f"index of a choice: expected the letter or the text of one of those that the question "
            f"lists, {', '.join(names)}, found {answer!r}: write its letter into the file, or "
            f"the choices as a list into one column, `choices`, of which an index from 0 is read"
        )


def _read_objects(items: Sequence[Mapping[str, Any]], column: str) -> tuple[list[Any], list[Any]]:
    """Letters, if there are any, and texts of choices that are objects."""
    keys = {key: [item.get(key) for item in items] for item in items for key in item}
    labels = next((values for values in keys.values() if _are_labels(values)), [])
    if "text" in keys:
        return keys.get("label", labels or [None] * len(items)), keys["text"]
    texts = [key for key, values in keys.items()
             if values != labels and all(isinstance(value, str) for value in values)]  # fmt: skip
    if len(texts) != 1:
        raise RejectedError(
            f"no choices: expected one text in each of those in '{column}', found "
            f"{items[0]!r:.60}: name it under columns, as choices: {column}.{(texts or [*keys])[0]}"
        )
    return labels, keys[texts[0]]


def _are_labels(values: Sequence[Any]) -> bool:
    """Whether they are letters from A, or digits from 0 or 1, as text, in any order."""
    kinds = [[*string.ascii_uppercase], [*map(str, range(26))], [*map(str, range(1, 27))]]
    named = sorted(value.strip().upper() for value in values if isinstance(value, str))
    return any(named == sorted(kind[: len(values)]) for kind in kinds)


def count_gold_forms(
    rows: Sequence[Mapping[str, Any]], choices_column: str, answer_column: str
) -> Counter[GoldForm]:
    """Number of gold answers of some rows that can have each form."""
    counts = Counter[GoldForm]()
    for fields in rows:
        with suppress(RejectedError):  # a bad row is recorded with its line
            gold, value = (columns.evaluate(fields, x) for x in (answer_column, choices_column))
            forms = read_choices(value, choices_column).read_gold(gold).keys()
            counts.update(forms)
            if "index" in forms and "text" not in forms:
                counts["index alone"] += 1
    return counts
