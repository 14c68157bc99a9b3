"""Multiple choice: choices that are written into the prompt, and the letter of the right one."""

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from stages.records.problems import Turn
from stages.sources import columns, raw_rows
from stages.sources.quarantine import RejectedError

_LABELLED = re.compile(r"\(?([A-Za-z])[).:]\s*")
GoldForm = Literal["label", "text"]
"""What the gold answers of a column are where one could be both."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Answers to choose from, in the prompt (A), (B), ..., whatever the file calls them."""

    labels: tuple[str, ...]
    """As the file has them: letters, or digits."""
    texts: tuple[str, ...]
    are_labelled: bool
    """Whether the file has the labels, so that a gold answer that is a label is meant as one."""

    def ask(self, turn: Turn) -> Turn:
        """The user's turn with a line for each choice."""
        letters = string.ascii_uppercase
        lines = [f"({letters[index]}) {text}" for index, text in enumerate(self.texts)]
        return replace(turn, content="\n".join([turn.content, *lines]))

    def find_label(self, gold: Any) -> int | None:
        """Which choice has this label, alone or in front of its text, perhaps in lower case."""
        text = str(gold).strip()
        label, match = text.strip("().: "), _LABELLED.match(text)
        if match is not None and (rest := text[match.end() :]) in self.texts:
            index = self.find_label(match[1])
            return index if index is not None and self.texts[index] == rest else None
        if label not in self.labels and self.find_text(gold) is None:
            label = label.upper()
        return self.labels.index(label) if label in self.labels else None

    def find_text(self, gold: Any) -> int | None:
        """Which choice, and no other, has this text."""
        text = str(gold).strip()
        return self.texts.index(text) if self.texts.count(text) == 1 else None

    def find_letter(self, gold: Any, form: GoldForm | None = None) -> str:
        """The letter of the gold answer, which is a label, an index from 0 or a choice's text.

        `form` says what the column holds, for a gold answer that is the label of one choice and the
        text of another; where it is not known, RejectedError.
        """
        gold = _as_whole(_single(gold), self.texts)
        text = str(gold).strip()
        by_label, by_text = self.find_label(gold), self.find_text(gold)
        form = form or ("label" if self.are_labelled or text.isdecimal() else None)
        if form is None and None not in (by_label, by_text) and by_label != by_text:
            raise RejectedError(
                f"ambiguous choice: {gold!r:.60} is the letter of one of {self.texts!r:.60} and "
                f"the text of another: write the letters (A, B, ..) in front of the choices"
            )
        if isinstance(gold, int) and not isinstance(gold, bool) and text not in self.labels:
            index = gold if 0 <= gold < len(self.texts) else by_text
        elif by_label is not None and (form != "text" or by_text is None):
            index = by_label
        else:
            index = by_text
            if index is None and text.isdecimal() and int(text) < len(self.texts):
                index = int(text)
        if index is None:
            raise RejectedError(
                f"no choice: expected the letter, index (from 0) or text of one of "
                f"{len(self.texts)} choices, found {gold!r:.60}"
            )
        return string.ascii_uppercase[index]


def read_choices(value: Any, column: str) -> Choices:
    """The choices of a row.

    A list of texts, perhaps with their letters in front; `{"text": [...], "label": [...]}`; a list
    of such objects, or of others with one text beside their letters; letters with their texts; or
    JSON text of these. RejectedError for all else.
    """
    labels: list[Any] = []
    value = columns.parse_json(value) or value if isinstance(value, str) else value
    if isinstance(value, Mapping) and isinstance(value.get("text"), list):
        texts, labels = value["text"], value.get("label", [])
    elif isinstance(value, Mapping):
        labels, texts = list(value), list(value.values())
        while texts and texts[-1] is None:  # of a column whose objects have the keys of all of them
            del labels[-1], texts[-1]
    else:
        items = [_single(item) for item in value] if isinstance(value, list) else []
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


def _read_objects(items: Sequence[Mapping[str, Any]], column: str) -> tuple[list[Any], list[Any]]:
    """The letters, if they have any, and the texts of choices that are objects."""
    keys = {key: [item.get(key) for item in items] for item in items for key in item}
    if "text" in keys:
        return keys.get("label", [None] * len(items)), keys["text"]
    letters = [*string.ascii_uppercase[: len(items)]]
    labels = next((values for values in keys.values() if values == letters), [])
    texts = [key for key, values in keys.items()
             if values != labels and all(isinstance(value, str) for value in values)]  # fmt: skip
    if len(texts) != 1:
        raise RejectedError(
            f"no choices: expected one text in each of those in '{column}', found "
            f"{items[0]!r:.60}: name it under columns, as choices: {column}.{(texts or [*keys])[0]}"
        )
    return labels, keys[texts[0]]


def _single(gold: Any) -> Any:
    """A gold answer or a choice, perhaps taken out of a list of it alone."""
    return gold[0] if isinstance(gold, list) and len(gold) == 1 else gold


def _as_whole(gold: Any, texts: Sequence[str]) -> Any:
    """1 for 1.0, which pandas makes of it in a column with a null, where no choice says 1.0."""
    is_whole = isinstance(gold, float) and gold.is_integer() and str(gold) not in texts
    return int(gold) if is_whole else gold


def _read_golds(
    rows: Sequence[Mapping[str, Any]], choices_column: str, answer_column: str
) -> Iterator[tuple[Any, Choices]]:
    """Gold answer and choices of each row; a bad row is recorded with its line."""
    for fields in rows:
        with suppress(RejectedError):
            gold, value = (columns.evaluate(fields, x) for x in (answer_column, choices_column))
            yield gold, read_choices(value, choices_column)


def find_gold_form(
    rows: Sequence[Mapping[str, Any]], choices_column: str, answer_column: str
) -> GoldForm | None:
    """Whether a column's gold answers, other than numbers, are labels of choices or their texts.

    Those decide that can only be read in one way; None: there are none, or some of each.
    """
    forms = set[GoldForm]()
    for value, choices in _read_golds(rows, choices_column, answer_column):
        gold = _single(value)
        if isinstance(gold, str) and not gold.strip().isdecimal():
            by_label, by_text = choices.find_label(gold), choices.find_text(gold)
            if (by_label is None) != (by_text is None):
                forms.add("label" if by_text is None else "text")
    return forms.pop() if len(forms) == 1 else None


def check_numbers(
    rows: Sequence[Mapping[str, Any]], choices_column: str, answer_column: str
) -> None:
    """Raise a ValueError where gold answers may be indexes of choices or their texts.

    A whole number is an index, and a text of digits a choice's text where one is the same. Not so
    if all whole numbers are texts of choices, or some texts of digits are none.
    """
    doubtful, are_texts, is_whole = list[Any](), True, False
    for value, choices in _read_golds(rows, choices_column, answer_column):
        gold = _as_whole(value, choices.texts)
        text = str(gold).strip()
        if isinstance(gold, bool) or not text.isdecimal():
            continue
        if text in choices.labels:
            return
        is_whole = is_whole or isinstance(gold, int)
        are_texts = are_texts and text in choices.texts
        if text in choices.texts and choices.texts[int(text) :][:1] not in ((), (text,)):
            doubtful.append((gold, choices.texts))
    if doubtful and is_whole == are_texts:
        gold, texts = doubtful[0]
        raise ValueError(
            f"'{answer_column}': expected letters of choices, or numbers that are either indexes "
            f"from 0 or texts of choices, found {gold!r}, which may be both of {texts!r:.60}. "
            f"Write the letters (A, B, ..) of the right choices."
        )
