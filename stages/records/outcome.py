"""A completion with what came of it, and how much it counts."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What an outcome reward model learns from, or is tested on."""

    id: str
    """The problem's id."""
    prompt_ids: list[int]
    completion_ids: list[int]
    """As sampled, the end-of-sequence token included."""
    right: bool
    """Whether its final answer is right."""
    weight: float
    """Of its loss; what a problem's outcomes weigh together does not depend on their number."""
