"""RejectedError rows: how they are recorded, counted, and when there are too many of them."""

from collections import Counter
from collections.abc import Sequence

from stages.records.problems import BadRow, Problem

MAX_CONTENT = 500
NUM_EXAMPLES = 3


class RejectedError(ValueError):
    """Why a row cannot be used: `<kind>: <what was expected and found>`."""


def bad_row(file: str, line: int, reason: str, content: str) -> BadRow:
    """The record of a rejected row; what is no valid Unicode in it is replaced."""
    safe = [text.encode("utf-8", "replace").decode() for text in (reason, content[:MAX_CONTENT])]
    return BadRow(file=file, line=line, reason=safe[0], content=safe[1])


def reject(problem: Problem, file: str, reason: str) -> BadRow:
    """The record of a problem that was read well and cannot be used all the same."""
    return bad_row(file, problem.line, reason, problem.question)


def count_by_kind(rows: Sequence[BadRow]) -> dict[str, int]:
    """How many rows were rejected for each kind of reason (its text before the colon)."""
    return dict(sorted(Counter(row.reason.partition(":")[0] for row in rows).items()))


def check_share(
    rows: Sequence[BadRow],
    num_rows: int,
    *,
    max_share: float,
    limit: str = "prepare_data.max_bad_share",
) -> None:
    """Refuse a source of which too much is bad.

    Args:
        rows: those that are bad.
        num_rows: all that were read.
        max_share: the largest share that is allowed.
        limit: the key that says so.

    Raises:
        ValueError: more than `max_share` of the `num_rows` rows read are in `rows`, or no row
            was read at all.
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
