"""A solution that a search found."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSolution:
    """One row of `data/search_solutions/<name>/solutions.jsonl`."""

    id: str
    """The problem's id."""
    index: int
    """From 0 among the problem's solutions, best first."""
    tree: int
    """The tree that it grew in."""
    completion: str
    """Decoded text without special tokens."""
    completion_ids: list[int]
    step_scores: list[float]
    """The process model's P(right so far) after each step."""
    score: float
    """What the search compared it by: its step scores made one."""
    kept: bool
    """Whether it is among the best of its tree; others finished too, and lost their place."""
    finish_reason: Literal["stop", "length", "step"]
    """`length`: a step was cut at its limit; `step`: the limit on steps was reached."""
