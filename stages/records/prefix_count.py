"""How often a policy reached the right answer from the beginning of a solution."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixCount:
    """One row of `data/label_steps/<name>/prefixes.jsonl`: hard and soft labels come from it."""

    id: str
    """The problem's id."""
    prefix_ids: list[int]
    """The steps so far, as sampled."""
    num_completions: int
    """Completions drawn from here."""
    num_right: int
    """Those of them that end in the right answer."""
    low: float
    """Wilson's 95 % interval of the probability that one does."""
    high: float
    generated_tokens: int
    """What the completions took."""
