"""Rows that cannot be used: how they are recorded and counted, and when there are too many."""

from collections import Counter
from collections.abc import Sequence
from typing import NoReturn

from pydantic import Field

from stages.config import Params, Where
from stages.records.problems import BadRow

MAX_CONTENT = 500
NUM_EXAMPLES = 3
TIE = "tie"
"""Kind of the reason of answers of which people prefer none."""
ALONE = "alone"
"""Kind of the reason of a rated answer that is the only one to its prompt."""
MERGED = "merged"
"""Kind of the reason of a row whose vote is part of another row's label: both judge the same
answers."""
PARTED = "parted conversations"
"""Kind of the reason of answers that follow other earlier answers, and have no prompt in common."""
REPEATED = "repeated"
"""Kind of the reason of a row with the same content as an earlier one."""
REPEATED_QUESTION = f"{REPEATED} question"
"""Kind of the reason of a dev or test problem whose question an earlier one asks."""
NEAR_COPY = "near copy"
"""Kind of the reason of a training problem that is nearly a test question."""
HARMLESS = frozenset({
    TIE, ALONE, MERGED, PARTED, REPEATED, REPEATED_QUESTION, NEAR_COPY,
})  # fmt: skip
"""Kinds of reasons that cast no doubt on the other rows, and do not count as bad."""


class RejectedError(ValueError):
    """Why a row cannot be used: `<kind>: <what was expected and found>`."""


def bad_row(file: str, line: int, reason: str, content: str) -> BadRow:
    """The record of a rejected row; what is no valid Unicode in it is replaced."""
    safe = [text.encode("utf-8", "replace").decode() for text in (reason, content[:MAX_CONTENT])]
    return BadRow(file=file, line=line, reason=safe[0], content=safe[1])


def count_by_kind(rows: Sequence[BadRow]) -> dict[str, int]:
    """How many rows were rejected for each kind of reason (its text before the colon)."""
    return dict(sorted(Counter(row.reason.partition(":")[0] for row in rows).items()))


def describe_kinds(rows: Sequence[BadRow]) -> str:
    """`count_by_kind` in words, as `2 alone, 1 tie`."""
    return ", ".join(f"{count} {kind}" for kind, count in count_by_kind(rows).items())


def is_harmless(row: BadRow) -> bool:
    """Whether the reason for leaving a row out casts no doubt on the other rows."""
    return row.reason.partition(":")[0] in HARMLESS


def check_share(rows: Sequence[BadRow], num_rows: int, *, max_share: float, limit: str) -> None:
    """Raise a ValueError if of `num_rows` none was read, or more than `max_share` are in `rows`.

    `limit` is the key of `max_share`.
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
    """Raise the ValueError for a source of whose `num_rows` none is left, as `rows` say."""
    first = rows[0]
    raise ValueError(
        f"expected rows that can be used, found none: of {num_rows} all are left out "
        f"({describe_kinds(rows)}). {first.file}, line {first.line}: {first.reason}"
    )


class FileLimits(Params):
    """What is taken of a file of people's labels, and how much of it may be left out."""

    name: str | None = None
    """The configuration, if a data set of the hub (`on: hub/<owner>/<name>`), or a folder with its
    README.md, has several."""
    revision: str | None = None
    """The commit of a data set of the hub; without one, two runs may read two versions."""
    split: str | None = None
    """The split, or of a folder without such a README.md words of the names of its files; null:
    `train`, or the only one."""
    where: dict[str, Where] = Field(default_factory=dict)
    """Column -> the value, or values, of the rows that are read; others are passed over."""
    licence: str
    """Under which licence the data may be used; recorded with the parameters."""
    max_tokens: int = Field(gt=0)
    """What is longer, with prompt and step tokens, is left out; at most the model's positions."""
    max_bad_share: float = Field(ge=0, lt=1)
    """Largest share that cannot be used; above it the file is refused."""
    max_long_share: float = Field(ge=0, lt=1)
    """Largest share that is too long; above it the file is refused."""

    def left_out(
        self, preset: str, bad: list[BadRow], over_long: list[BadRow], num_rows: int,
        num_labels: int | None = None,
    ) -> list[BadRow]:  # fmt: skip
        """All that is left out, in the order of its lines; too much of the file is refused.

        Rows of the kinds `HARMLESS` spoil nothing else.

        Args:
            preset: Its name, for the messages.
            bad: Rows, or labels of them, that cannot be used.
            over_long: Labels that are too long: pairs, completions or solutions.
            num_rows: Number of rows of the file, of which `bad` is a share, each row once.
            num_labels: Number of labels and of rows without one, of which `over_long` is a share;
                as many as rows where a row has one.
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
