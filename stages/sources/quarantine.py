"""Rows that cannot be used: how they are recorded and counted, and when there are too many.

Besides malformed rows, `screen` rejects problems that spoil a data set though each row is well
formed: a second problem with the same id, a gold answer that the answer checker cannot read, and a
training problem whose question is also a test question.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from stages.params import Params
from stages.records.problems import BadRow, Problem
from stages.sources.splitting import normalise

MAX_CONTENT = 500
NUM_EXAMPLES = 3


class RejectedError(ValueError):
    """Why a row cannot be used: `<kind>: <what was expected and found>`."""


def bad_row(file: str, line: int, reason: str, content: str) -> BadRow:
    """The record of a rejected row; what is no valid Unicode in it is replaced."""
    safe = [text.encode("utf-8", "replace").decode() for text in (reason, content[:MAX_CONTENT])]
    return BadRow(file=file, line=line, reason=safe[0], content=safe[1])


def count_by_kind(rows: Sequence[BadRow]) -> dict[str, int]:
    """How many rows were rejected for each kind of reason (its text before the colon)."""
    return dict(sorted(Counter(row.reason.partition(":")[0] for row in rows).items()))


def check_share(rows: Sequence[BadRow], num_rows: int, *, max_share: float, limit: str) -> None:
    """Refuse a source of whose `num_rows` too many are bad; `limit` is the key of `max_share`.

    Raises:
        ValueError: more than `max_share` are in `rows`, or none was read at all.
    """
    if num_rows == 0:
        section = limit.rpartition(".")[0]
        raise ValueError(f"the source has no rows. Check the section `{section}` and its file.")
    if len(rows) <= max_share * num_rows:
        return
    examples = "\n".join(
        f"  {row.file}, line {row.line}: {row.reason}" for row in rows[:NUM_EXAMPLES]
    )
    kinds = ", ".join(f"{count} {kind}" for kind, count in count_by_kind(rows).items())
    raise ValueError(
        f"{len(rows)} of {num_rows} rows cannot be used ({kinds}); `{limit}` allows "
        f" {max_share:.1%}. The first of them:\n{examples}\n"
        f"Correct these rows or the source's settings, or raise `{limit}`: "
        f"then they are left out and listed in quarantine.jsonl."
    )


class FileLimits(Params):
    """What is taken of a file of people's labels, and how much of it may be left out."""

    licence: str
    """Under which licence the data may be used; recorded with the parameters."""
    max_tokens: int = Field(gt=0)
    """What is longer, with prompt and step tokens, is left out; at most the model's positions."""
    max_bad_share: float = Field(ge=0, lt=1)
    """Largest share that cannot be used; above it the file is refused."""
    max_long_share: float = Field(ge=0, lt=1)
    """Largest share that is too long; above it the file is refused."""

    def left_out(
        self, preset: str, bad: list[BadRow], over_long: list[BadRow], num_rows: int
    ) -> list[BadRow]:
        """All that is left out, in the order of its lines; too much of the file is refused."""
        for limit, rows in {"max_bad_share": bad, "max_long_share": over_long}.items():
            check_share(rows, num_rows, max_share=getattr(self, limit), limit=f"{preset}.{limit}")
        return sorted([*bad, *over_long], key=lambda one: one.line)


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
        self.bad.extend(
            bad_row(self.file_of(problem), problem.line, why, problem.question)
            for problem, why in problems
        )

    def check_share(self, max_share: float) -> None:
        """Raise a ValueError if more than `max_share` of the rows is bad."""
        limit = "data.max_bad_share"
        check_share(self.bad, self.num_rows, max_share=max_share, limit=limit)

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
    """Sort `rows`, in their order; `read_answer` reads the final answer in a gold answer's text."""
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
