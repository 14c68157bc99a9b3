"""A completion with a verdict of its own, not compared with another."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One row of what unpaired preference learning reads."""

    id: str
    """The problem's id."""
    prompt: str
    prompt_ids: list[int]
    completion: str
    completion_ids: list[int]
    """As sampled, the end-of-sequence token included."""
    desirable: bool
    """Whether the completion should become more likely, or less."""
