"""Rows that compare the same two answers to one prompt: repeated ones, and people who disagree.

Rows of which every column is the same say one thing: the first is read, each other one is
quarantined as `repeated`. Rows that differ in another column, such as who judged, are votes: they
become one pair, at the place of the first, with the mean of their probabilities as its label. Where
each row is sure, that is the share of votes for `chosen`; a row that prefers neither answer counts
as half a vote for each. The loss of a soft label is the expected loss (`loops/preference`), so no
rater is overruled; two pairs that contradict each other would say the same, with twice the weight
of other pairs, and would count as one right and one wrong in every accuracy. As soon as rows
disagree, rows that are the same are votes too, since the file then holds what several people say.
Where the votes are even it is a tie, and each of its rows is listed as one; the other rows of votes
are listed as `merged`.

Completions that are labelled good by one row and bad by another stay both: KTO has a loss for each.
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

Label = RawPreference | RawLabelled


class LabelledRow(NamedTuple):
    """A row with the pairs, or the labelled completion, that it holds."""

    row: RawRow
    labels: Sequence[Label]
    tie: BadRow | None = None
    """Its record, where it prefers neither of the answers of its one pair, of probability 1/2."""


class Votes(NamedTuple):
    """What several rows say together of the same two answers."""

    number: int
    """Of the first of these rows that prefers one."""
    first: RawPreference
    share: float
    """Mean probability that its `chosen` is the better answer."""
    num_votes: int


def record_row(row: RawRow, reason: str) -> BadRow:
    """The record of a row that has no pair of its own."""
    return bad_row(row.file, row.line, reason, content_of(row))


def content_of(row: RawRow) -> str:
    """All that a row says, as text: the same for the same row."""
    return json.dumps(row.fields, ensure_ascii=False, default=str, sort_keys=True)


def find_repeated(rows: Iterable[RawRow]) -> Iterator[tuple[int, RawRow]]:
    """Number of each row that is the same as an earlier one in all columns, and that one."""
    first_rows = dict[str, RawRow]()
    for number, row in enumerate(rows):
        first = first_rows.setdefault(content_of(row), row)
        if first is not row:
            yield number, first


def describe_repeated(first: RawRow) -> str:
    """The reason of a row that is the same as an earlier one."""
    return f"{REPEATED}: the same row as line {first.line} of {first.file}"


def merge_rows(rows: Iterable[LabelledRow | BadRow]) -> Iterator[Label | BadRow]:
    """The labels of rows, one for each two answers, and a record of each row without one."""
    everything = list(rows)
    several = _find_several(everything)
    repeated = _find_copies(everything, several)
    votes = {
        key: counted
        for key, members in several.items()
        if (counted := _count_votes([vote for vote in members if vote[0] not in repeated]))
    }
    for number, row in enumerate(everything):
        if isinstance(row, BadRow):
            yield row
        elif number in repeated:
            yield record_row(row.row, describe_repeated(repeated[number]))
        elif row.tie is not None and _answers_of(row.labels[0]) not in votes:
            yield row.tie
        else:
            yield from _merge_row(number, row, votes)


def _find_several(
    rows: Sequence[LabelledRow | BadRow],
) -> dict[Any, list[tuple[int, Label]]]:
    """What more than one label is about -> number of the row and label of each."""
    by_answers = defaultdict[Any, list[tuple[int, Label]]](list)
    for number, row in enumerate(rows):
        for label in row.labels if isinstance(row, LabelledRow) else ():
            by_answers[_answers_of(label)].append((number, label))
    return {key: members for key, members in by_answers.items() if len(members) > 1}


def _answers_of(label: Label) -> Any:
    """What a label is about: the prompt with two answers, or with one."""
    if isinstance(label, RawLabelled):
        return label.turns, label.completion.strip()
    return label.turns, frozenset((label.chosen.strip(), label.rejected.strip()))


def _find_copies(
    everything: Sequence[LabelledRow | BadRow], several: Mapping[Any, Sequence[tuple[int, Label]]]
) -> dict[int, RawRow]:
    """Number of each repeated row -> the first one; none of answers on which rows disagree."""
    numbers = sorted({number for members in several.values() for number, _ in members})
    disagreed = {
        number for members in several.values() if not _do_agree(members) for number, _ in members
    }
    rows = [row.row for row in (everything[i] for i in numbers) if isinstance(row, LabelledRow)]
    copies = {numbers[place]: first for place, first in find_repeated(rows)}
    return {number: first for number, first in copies.items() if number not in disagreed}


def _do_agree(members: Sequence[tuple[int, Label]]) -> bool:
    """Whether all prefer the same answer, or call a completion good."""
    _, first = members[0]
    if isinstance(first, RawLabelled):
        return len({getattr(label, "desirable", None) for _, label in members}) == 1
    return all(_prefer(first, label) > 0.5 for _, label in members)


def _prefer(first: Label, label: Label) -> float:
    """The probability by a pair that the chosen answer of `first` is the better one."""
    assert isinstance(first, RawPreference)
    assert isinstance(label, RawPreference)
    is_same = label.chosen.strip() == first.chosen.strip()
    return label.probability if is_same else 1 - label.probability


def _count_votes(votes: Sequence[tuple[int, Label]]) -> Votes | None:
    """What several pairs say together; None of a single one, of ties alone, and of completions."""
    sure = [(number, vote) for number, vote in votes
            if isinstance(vote, RawPreference) and vote.probability != 0.5]  # fmt: skip
    if len(votes) == 1 or not sure:
        return None
    number, first = sure[0]
    share = round(fmean(_prefer(first, vote) for _, vote in votes), 12)
    return Votes(number, first, share, len(votes))


def _merge_row(
    number: int, row: LabelledRow, votes_by_answers: Mapping[Any, Votes]
) -> Iterator[Label | BadRow]:
    """The labels that stand at a row's place, or the record of where its votes are."""
    reasons = list[str]()
    for label in row.labels:
        votes = votes_by_answers.get(_answers_of(label)) if votes_by_answers else None
        if votes is None:
            yield label
        elif votes.share == 0.5:
            reasons.append(
                f"{TIE}: the {votes.num_votes} rows that compare these two answers, the first in "
                f"line {votes.first.line} of {votes.first.file}, prefer neither on average"
            )
        elif number == votes.number:
            yield _give_share(votes)
        else:
            reasons.append(
                f"{MERGED}: the same two answers as in line {votes.first.line} of "
                f"{votes.first.file}, whose label is the share of {votes.num_votes} votes"
            )
    if row.labels and len(reasons) == len(row.labels):
        yield record_row(row.row, min(reasons))  # merged, unless it is a tie in all its pairs


def _give_share(votes: Votes) -> RawPreference:
    """The pair with a share of votes as its label, the answer with more votes as `chosen`."""
    first, share = votes.first, votes.share
    if share > 0.5:
        return replace(first, probability=share)
    return replace(
        first, chosen=first.rejected, rejected=first.chosen, probability=round(1 - share, 12)
    )
