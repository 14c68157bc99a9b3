"""What a judge said of two completions of one problem, in both orders."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One row of `data/judge_preferences/<name>/verdicts.jsonl`: a pair that was asked about."""

    split: str
    """`train` or `heldout`: the file that its preference is in, if it became one."""
    id: str
    """The problem's id."""
    index_a: int
    """Index in the pool of completion A, which stands first in the first order."""
    index_b: int
    p12: float | None
    """P(the one standing first is better) in the order A, B; None: not read."""
    p21: float | None
    """P(the one standing first is better) in the order B, A."""
    gap: float | None
    """|p12 - (1 - p21)|: 0 for a judge that does not look at the order."""
    probability: float | None
    """P(A is better): (p12 + 1 - p21) / 2."""
    option_mass: float | None
    """The smaller of the two orders' probabilities that an option is answered at all."""
    principle: int | None
    """Number of the principle drawn from the constitution; None without one."""
    prompt_version: str
    """Of the message (`short-1`)."""
    dropped: str | None
    """Why it became no preference: `too_long`, `parse_failure`, `inconsistent`,
    `tie`, `low_confidence`; None: it became one."""
