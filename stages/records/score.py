"""A scalar score of a completion."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One row of `data/score_candidates/<policy>/scores.jsonl`."""

    id: str
    """The problem's id."""
    index: int
    """The completion's index in the pool."""
    score: float
    """The reward model's scalar: a logit, comparable within a problem only."""
