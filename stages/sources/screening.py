"""Reject the problems that spoil a data set though each row is well formed.

These are: a second problem with the same id, a gold answer that the answer checker
cannot read, and a training problem whose question is also a test question.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from stages.records.problems import BadRow, Problem
from stages.sources.quarantine import check_share, count_by_kind, reject
from stages.sources.splitting import normalise


@dataclass(frozen=True, kw_only=True, slots=True)
class Screened:
    """What a source yielded, sorted into usable and not."""

    problems: list[Problem]
    bad: list[BadRow]
    num_rows: int
    file_of: Callable[[Problem], str]
    """The file a problem came from, for the record of its rejection."""

    def reject(self, problems: Iterable[tuple[Problem, str]]) -> None:
        """Record problems that turned out to be unusable, with the reasons."""
        self.bad.extend(reject(problem, self.file_of(problem), why) for problem, why in problems)

    def check_share(self, max_share: float) -> None:
        """Raise a ValueError if more than `max_share` of the rows is bad."""
        check_share(self.bad, self.num_rows, max_share=max_share)

    def describe(self) -> dict[str, Any]:
        """For the data card: rows read, well-formed problems by the source's split, rejections."""
        problems = dict(Counter(problem.split or "unsplit" for problem in self.problems))
        kinds = count_by_kind(self.bad)
        return {"rows_read": self.num_rows, "source_problems": problems, "quarantined": kinds}


def screen(
    rows: Iterable[Problem | BadRow],
    *,
    read_answer: Callable[[str], str | None],
    file_of: Callable[[Problem], str],
) -> Screened:
    """Sort `rows`, in their order.

    Args:
        rows: what a source yields.
        read_answer: the final answer in a gold answer's text, None if it has none.
        file_of: the file a problem came from.
    """
    everything = list(rows)
    problems = [row for row in everything if isinstance(row, Problem)]
    tests = {normalise(problem.question) for problem in problems if problem.split == "test"}
    screened = Screened(problems=[], bad=[], num_rows=len(everything), file_of=file_of)
    lines_of_ids: dict[str, int] = {}
    for row in everything:
        if isinstance(row, BadRow):
            screened.bad.append(row)
            continue
        answer = read_answer(row.answer)
        if row.id in lines_of_ids:
            reason = f"duplicate id: {row.id!r:.60} is also the id of line {lines_of_ids[row.id]}"
        elif answer is None:
            reason = f"answer does not parse: the checker reads no value in {row.answer!r:.60}"
        elif row.split != "test" and normalise(row.question) in tests:
            reason = "overlap: the question is also a test question"
        else:
            lines_of_ids[row.id] = row.line
            screened.problems.append(replace(row, answer=answer))
            continue
        screened.reject([(row, reason)])
    return screened
