"""Quarantine: records and counts of rows that cannot be used, and limits on their share."""

from collections import Counter
from collections.abc import Sequence
from typing import NoReturn

from pydantic import Field

from stages.config import Params, Where
from stages.records.problems import BadRow

MAX_CONTENT = 500
NUM_EXAMPLES = 3
TIE = "tie"
"""Kind of reason: people prefer neither answer."""
ALONE = "alone"
"""Kind of reason: a rated answer is the only one to its prompt."""
MERGED = "merged"
"""Kind of reason: the row's vote is part of another row's label, since both judge the same
answers."""
PARTED = "parted conversations"
"""Kind of reason: the answers follow different earlier answers, so they share no prompt."""
REPEATED = "repeated"
"""Kind of reason: the row has the same content as an earlier one."""
REPEATED_QUESTION = f"{REPEATED} question"
"""Kind of reason: an earlier problem has the question of this dev or test problem."""
NEAR_COPY = "near copy"
"""Kind of reason: a training problem is nearly a test question."""
HARMLESS = frozenset({
    TIE, ALONE, MERGED, PARTED, REPEATED, REPEATED_QUESTION, NEAR_COPY,
})  # fmt: skip
"""Kinds of reason that cast no doubt on the other rows, and do not count as bad."""


class RejectedError(ValueError):
    """Reason why a row cannot be used: `<kind>: <what was expected and found>`."""


def bad_row(file: str, line: int, reason: str, content: str) -> BadRow:
    """Record of a rejected row, with invalid Unicode replaced."""
    safe = [text.encode("utf-8", "replace").decode() for text in (reason, content[:MAX_CONTENT])]
    return BadRow(file=file, line=line, reason=safe[0], content=safe[1])


def count_by_kind(rows: Sequence[BadRow]) -> dict[str, int]:
    """Number of rejected rows by kind of reason (its text before the colon)."""
    return dict(sorted(Counter(row.reason.partition(":")[0] for row in rows).items()))


def describe_kinds(rows: Sequence[BadRow]) -> str:
    """Counts by kind of reason in words, as `2 alone, 1 tie`."""
    return ", ".join(f"{count} {kind}" for kind, count in count_by_kind(rows).items())


def is_harmless(row: BadRow) -> bool:
    """Whether the reason for leaving a row out casts no doubt on the other rows."""
    return row.reason.partition(":")[0] in HARMLESS


def check_share(rows: Sequence[BadRow], num_rows: int, *, max_share: float, limit: str) -> None:
    """Raise a ValueError if `num_rows` is 0, or `rows` are more than the share `max_share` of it.

    `limit`: the key of `max_share`.
    """
    if num_rows == 0:
        section = limit.rpartition(".")[0]
        raise ValueError(f"the source has no rows. Check the section `{section}` and its file.")
    if len(rows) <= max_share * num_rows:
        return
    examples = "\n".join(
        f"  {row.file}, line {row.line}: {row.reason}" for row in rows[:NUM_EXAMPLES]
    )
    raise ValueError(
        f"{len(rows)} of {num_rows} rows cannot be used ({describe_kinds(rows)}); `{limit}` allows "
        f"{max_share:.1%}. The first of them:\n{examples}\n"
        f"Correct these rows or the source's settings, or raise `{limit}`: "
        f"then they are left out and listed in quarantine.jsonl."
    )


def refuse_all(rows: Sequence[BadRow], num_rows: int) -> NoReturn:
    """Raise the ValueError for a source whose `num_rows` rows are all rejected; `rows`: reasons."""
    first = rows[0]
    raise ValueError(
        f"expected rows that can be used, found none: of {num_rows} all are left out "
        f"({describe_kinds(rows)}). {first.file}, line {first.line}: {first.reason}"
    )


class FileLimits(Params):
    """Selection of rows in a file of people's labels, and limits on the rows left out."""

    name: str | None = None
    """Configuration, if a data set of the hub (`on: hub/<owner>/<name>`), or a folder with its
    README.md, has several."""
    revision: str | None = None
    """Commit of a data set of the hub; without one, two runs may read two versions."""
    split: str | None = None
    """Split, or, for a folder without such a README.md, words in the names of its files; null:
    `train`, or the only one."""
    where: dict[str, Where] = Field(default_factory=dict)
    """Column -> the value, or values, of the rows to read; other rows are skipped."""
    licence: str
    """Licence of the data; recorded with the parameters."""
    max_tokens: int = Field(gt=0)
    """Largest length with prompt and step tokens, at most the model's positions; longer labels are
    left out."""
    max_bad_share: float = Field(ge=0, lt=1)
    """Largest share of rows that cannot be used; above it the file is refused."""
    max_long_share: float = Field(ge=0, lt=1)
    """Largest share of labels that are too long; above it the file is refused."""

    def left_out(
        self, preset: str, bad: list[BadRow], over_long: list[BadRow], num_rows: int,
        num_labels: int | None = None,
    ) -> list[BadRow]:  # fmt: skip
        """All rows and labels left out, in the order of lines; a ValueError if they are too many.

        Rows of the kinds `HARMLESS` do not count.

        Args:
            preset: Name of the preset, for the messages.
            bad: Rows, or labels of rows, that cannot be used.
            over_long: Labels that are too long: pairs, completions or solutions.
            num_rows: Number of rows of the file, the denominator for `bad`, each row once.
            num_labels: Number of labels and of rows without one, the denominator for `over_long`;
                None: one label per row.
        """
        harmless = [row for row in bad if is_harmless(row)]
        if harmless and len(harmless) == num_rows:
            refuse_all(harmless, num_rows)
        wrong = [*{(row.file, row.line): row for row in bad if not is_harmless(row)}.values()]
        for limit, rows, total in (
            ("max_bad_share", wrong, num_rows),
            ("max_long_share", over_long, num_labels or num_rows),
        ):
            check_share(rows, total, max_share=getattr(self, limit), limit=f"{preset}.{limit}")
        return sorted([*bad, *over_long], key=lambda row: row.line)
