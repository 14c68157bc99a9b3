"""A problem as a source yields it, before it is split and rendered."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A question with a known final answer and, perhaps, a worked solution."""

    id: str
    """Unique within the source."""
    question: str
    """Plain text, without any prompt format."""
    answer: str
    """The final answer as the source states it, for example `1,234` or `3/4`."""
    solution: str | None
    """A demonstration to imitate, ending with its final answer (`#### 42`), right or wrong;
    None when the source has none: the problem is then a prompt only."""
    split: str | None
    """`test` or `train` where the source fixes it; None: by the hash of the question."""
    line: int
    """Where it came from: line or row number in the source, from 1."""
