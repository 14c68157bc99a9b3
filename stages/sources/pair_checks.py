"""Checks of a preference pair against its other columns: ratings, differences, ties, strengths.

| column, in any spelling | result |
|---|---|
| `chosen_score` and `rejected_score`, or ratings | chosen lower: a contradiction; equal: tie |
| an average, a reward, a rank of each | chosen worse: a contradiction |
| helpfulness, votes, `is_correct` of each | a contradiction if none favours chosen |
| the same for `response_1` and `response_2`, as `rating_1` | a contradiction; equal: no tie |
| `score_diff`, `rating_difference`, `delta` | below 0: a contradiction; 0: a tie |
| `tie`, `is_tie` | true: a tie |
| `status`, `verdict`, `outcome` and the like | `tie`: a tie |
| `preferred`, `human_preference`, `is_chosen` and the like | refused by name, unless `chosen` |
| `strength`, `confidence`, `agreement` | refused by name: no loss here weighs pairs by them |

A contradiction and a tie are bad rows. Each can be listed under `ignore`.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from stages.sources import columns as columns_of
from stages.sources.columns import read_number
from stages.sources.quarantine import TIE, RejectedError

Kind = Literal["score", "overall", "attribute"]
CHOSEN = ("chosen", "rejected")
"""Words that mark columns of the better and of the worse answer."""
RANKS = ("rank", "ranks")
"""Columns in which a lower number is better."""
_ATTRIBUTE, _NO_ATTRIBUTE, _NUMBERED, _TIE, _JUDGEMENT, WINNER, DIFFERENCE, STRENGTH, SCALE = (
    re.compile(columns_of.NAMES[name]) for name in (
        "attribute", "no_attribute", "numbered", "tie", "judgement", "winner", "difference",
        "strength", "scale",
    )
)  # fmt: skip
"""Patterns of column names, by meaning (columns.yaml)."""
PROBABILITY = re.compile("|".join(columns_of.NAMES["probabilities"]))
LABELS = re.compile("labels")


class Ratings(NamedTuple):
    """Pair of columns with a number for each of two answers."""

    chosen: str
    rejected: str
    kind: Kind
    sign: int
    """-1 if a lower number is better, else 1."""


def normalise_name(name: str) -> str:
    """A column's name in lower case, its words joined by underscores."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return re.sub(r"[\W_]+", "_", words).strip("_").lower()


def find_marks(better: str, worse: str) -> tuple[str, str] | None:
    """The word in which two columns' names differ, as `1` and `2`; None: not exactly one."""
    words = [_split_words(name) for name in (better, worse)]
    if len(words[0]) != len(words[1]):
        return None
    pairs = [pair for pair in zip(*words, strict=True) if pair[0] != pair[1]]
    return pairs[0] if len(pairs) == 1 else None


def says_of_side(name: str, words: Collection[str]) -> bool:
    """Whether a column, or a path, belongs to an answer with one of these words."""
    return not {*words}.isdisjoint(_split_words(name))


def check_ratings(
    fields: Mapping[str, Any], ignore: Sequence[str], marks: tuple[str, str] = CHOSEN
) -> None:
    """Raise RejectedError for ratings of a pair's answers that contradict it, or are a tie.

    Args:
        fields: The row.
        ignore: Columns to skip.
        marks: Words that mark columns of the better and of the worse answer.
    """
    attributes = dict[Ratings, float]()
    is_rated = False
    for pair in _find_ratings(tuple(fields), marks):
        if pair.chosen in ignore or pair.rejected in ignore:
            continue
        lead = _read_lead(fields, pair)
        if lead is None:
            continue
        if pair.kind == "attribute":
            attributes[pair] = lead
            continue
        is_rated = True
        if lead < 0:
            _refuse_ratings(pair)
        if lead == 0 and pair.kind == "score":
            raise RejectedError(
                f"{TIE}: '{pair.chosen}' equals '{pair.rejected}'; keep such pairs as ignore: "
                f"[{pair.chosen}, {pair.rejected}]"
            )
    if attributes and not is_rated and max(attributes.values()) <= 0 > min(attributes.values()):
        _refuse_ratings(min(attributes, key=attributes.__getitem__))


def _refuse_ratings(pair: Ratings) -> None:
    side = "below" if pair.sign > 0 else "above"
    raise RejectedError(
        f"contradiction: '{pair.chosen}' of the chosen answer is {side} '{pair.rejected}'; keep "
        f"such pairs as ignore: [{pair.chosen}, {pair.rejected}]"
    )


def _read_lead(fields: Mapping[str, Any], pair: Ratings) -> float | None:
    """Difference by which chosen is better; None: an answer has no number."""
    values = [fields[name] for name in (pair.chosen, pair.rejected)]
    if None in values:
        return None
    better, worse = map(_read_level, values)
    if better is None or worse is None:
        if pair.kind == "score":
            name = pair.chosen if better is None else pair.rejected
            raise RejectedError(f"no score: '{name}' should be a number; or ignore: [{name}]")
        return None
    return pair.sign * (better - worse)


def _read_level(value: Any) -> float | None:
    """A number, or 1 for true and 0 for false."""
    number, flag = read_number(value), columns_of.read_flag(value)
    return float(flag) if number is None and flag is not None else number


def _split_words(name: str) -> tuple[str, ...]:
    """The words and numbers of a column's name, in lower case."""
    return tuple(re.findall(r"[^\W\d_]+|\d+", normalise_name(name)))


@cache
def _find_ratings(names: tuple[str, ...], marks: tuple[str, str]) -> tuple[Ratings, ...]:
    """Rating columns with the better answer's mark, each with the worse answer's column."""
    better, worse = marks
    by_words = {_split_words(name): name for name in names}
    ratings = list[Ratings]()
    for words, name in by_words.items():
        worse_name = by_words.get(tuple(worse if word == better else word for word in words))
        what = "_".join(word for word in words if word != better)
        kind = _classify(what)
        if marks != CHOSEN:
            kind = None if _NUMBERED.search(what) else "overall" if kind == "score" else kind
        if worse_name not in (None, name) and kind is not None:
            ratings.append(Ratings(name, worse_name, kind, -1 if what in RANKS else 1))
    return tuple(ratings)


def _classify(what: str) -> Kind | None:
    """Kind of a rating, by its column's name without marks; None: it is no rating."""
    for kind in ("score", "overall"):
        if what in columns_of.NAMES["scores" if kind == "score" else kind]:
            return kind
    is_attribute = _ATTRIBUTE.fullmatch(what) and not _NO_ATTRIBUTE.fullmatch(what)
    return "attribute" if is_attribute else None


def is_score(name: str) -> bool:
    """Whether a column of such a name rates an answer, as `score`, `elo` and `avg_rating` do."""
    name = normalise_name(name)
    return _classify(name) is not None or name in columns_of.NAMES["single_scores"]


def check_differences(fields: Mapping[str, Any], ignore: Sequence[str]) -> None:
    """Raise RejectedError unless differences of scores (chosen minus rejected) are above 0."""
    for name in find_columns(tuple(fields), DIFFERENCE):
        lead = None if name in ignore else read_number(fields[name])
        if lead is not None and lead < 0:
            reason = f"contradiction: '{name}' is below 0: the rejected answer is better"
            raise RejectedError(f"{reason}; keep such pairs as ignore: [{name}]")
        if lead == 0:
            raise RejectedError(f"{TIE}: '{name}' is 0; keep such pairs as ignore: [{name}]")


def check_tie(fields: Mapping[str, Any], ignore: Sequence[str]) -> None:
    """Raise RejectedError for a pair if a column marks it as a tie."""
    names = tuple(name for name in fields if name not in ignore)
    ties = [name for name in find_columns(names, _TIE) if columns_of.read_flag(fields[name])]
    ties += [name for name in find_columns(names, _JUDGEMENT)
             if str(fields[name]).strip().lower() in ("tie", "tied", "draw")]  # fmt: skip
    for name in ties:
        raise RejectedError(
            f"{TIE}: '{name}' is {fields[name]!r}; keep such pairs as ignore: [{name}]"
        )


@cache
def find_columns(names: tuple[str, ...], pattern: re.Pattern[str]) -> tuple[str, ...]:
    """The columns whose names, in any spelling, match a pattern."""
    return tuple(name for name in names if pattern.fullmatch(normalise_name(name)))
