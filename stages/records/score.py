"""What scorers make of a completion."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One row of `data/score_candidates/<entry>/scores.jsonl`."""

    id: str
    """The problem's id."""
    index: int
    """The completion's index in the pool."""
    scores: dict[str, float]
    """Logits of the entry's `ensemble`, `reward_model` and `outcome`, those that it names:
    comparable within a problem only."""
    disagreement: float | None
    """The standard deviation of the ensemble's members; None without one."""
    steps: list[float] | None
    """The process model's P(right so far) after each step; None without one."""
