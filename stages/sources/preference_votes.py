"""Votes: rows that compare the same two answers to one prompt.

Each row is a vote, also if it equals another in every column: it may be a copy or another person's.
Votes become one pair, at the place of the first, with the mean of their probabilities as its label.
If each row is sure, that is the share of votes for `chosen`; a row that prefers neither answer
counts as half a vote for each. The loss of a soft label is the expected loss (`loops/preference`),
so no rater is overruled. Two contradictory pairs would have the same loss with twice the weight of
other pairs, and would count as one right and one wrong in every accuracy. Even votes are a tie, and
all its rows are listed as such; otherwise the rows after the first are listed as `merged`.

A completion that one row labels good and another bad is kept with both: KTO has a loss for each. A
row with a labelled completion that equals an earlier one in every column is `repeated`.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from stages.records.preferences import RawLabelled, RawPreference
from stages.records.problems import BadRow
from stages.sources.containers import RawRow
from stages.sources.quarantine import MERGED, REPEATED, TIE, bad_row


class LabelledRow(NamedTuple):
    """A row with its pairs, or its labelled completion."""

    row: RawRow
    labels: Sequence[RawPreference | RawLabelled]
    tie: BadRow | None = None
    """Its record, if it prefers neither answer of its one pair (probability 1/2)."""


class Votes(NamedTuple):
    """Votes of several rows on the same two answers."""

    number: int
    """Number of the first of these rows that prefers an answer."""
    first: RawPreference
    share: float
    """Mean probability that its `chosen` is the better answer."""
    num_votes: int


def record_row(row: RawRow, reason: str) -> BadRow:
    """The record of a row that becomes no pair."""
    return bad_row(row.file, row.line, reason, _content_of(row))


def _content_of(row: RawRow) -> str:
    """Content of a row as text, the same for equal rows."""
    return json.dumps(row.fields, ensure_ascii=False, default=str, sort_keys=True)


def merge_rows(
    rows: Iterable[LabelledRow | BadRow],
) -> Iterator[RawPreference | RawLabelled | BadRow]:
    """The labels of rows, one per pair of answers, and a record of each row without one."""
    everything = list(rows)
    votes_by_answers = _count_votes(everything)
    completions = dict[str, RawRow]()
    for number, row in enumerate(everything):
        if isinstance(row, BadRow):
            yield row
            continue
        reasons = list[str]()
        for label in row.labels:
            if isinstance(label, RawLabelled):
                first = completions.setdefault(_content_of(row.row), row.row)
                if first is row.row:
                    yield label
                else:
                    reasons.append(f"{REPEATED}: the same as line {first.line} of {first.file}")
                continue
            votes = votes_by_answers.get(_answers_of(label))
            if votes is None:
                yield label if row.tie is None else row.tie
            elif votes.share == 0.5:
                reasons.append(
                    f"{TIE}: the {votes.num_votes} rows that compare these two answers, the first "
                    f"in line {votes.first.line} of {votes.first.file}, prefer neither on average"
                )
            elif number == votes.number:
                yield give_probability(votes.first, votes.share)
            else:
                reasons.append(
                    f"{MERGED}: the same two answers as in line {votes.first.line} of "
                    f"{votes.first.file}, whose label is the share of {votes.num_votes} votes"
                )
        if row.labels and len(reasons) == len(row.labels):
            yield record_row(row.row, min(reasons))  # merged, unless it is a tie in all its pairs


def _count_votes(rows: Sequence[LabelledRow | BadRow]) -> Mapping[Any, Votes]:
    """Two answers that several rows compare -> their votes; not if all rows prefer neither."""
    votes_by_answers = defaultdict[Any, list[tuple[int, RawPreference]]](list)
    for number, row in enumerate(rows):
        for label in row.labels if isinstance(row, LabelledRow) else ():
            if isinstance(label, RawPreference):
                votes_by_answers[_answers_of(label)].append((number, label))
    counted = dict[Any, Votes]()
    for answers, votes in votes_by_answers.items():
        sure = [(number, vote) for number, vote in votes if vote.probability != 0.5]
        if len(votes) > 1 and sure:
            number, first = sure[0]
            share = round(fmean(_prefer(first, vote) for _, vote in votes), 12)
            counted[answers] = Votes(number, first, share, len(votes))
    return counted


def _answers_of(label: RawPreference) -> Any:
    """Key of a pair: the prompt with two answers, in any order."""
    return label.turns, frozenset((label.chosen.strip(), label.rejected.strip()))


def _prefer(first: RawPreference, label: RawPreference) -> float:
    """Probability, according to `label`, that the chosen answer of `first` is the better one."""
    is_same = label.chosen.strip() == first.chosen.strip()
    return label.probability if is_same else 1 - label.probability


def give_probability(pair: RawPreference, probability: float) -> RawPreference:
    """The pair with P(chosen is better), the answer that is more likely the better as `chosen`."""
    if probability >= 0.5:
        return replace(pair, probability=probability)
    return replace(
        pair, chosen=pair.rejected, rejected=pair.chosen, probability=round(1 - probability, 12)
    )
