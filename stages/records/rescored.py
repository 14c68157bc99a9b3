"""Completions with the reward that they had, and the one that another reward gives them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescored:
    """A completion with both rewards: a row of `rescored.jsonl`."""

    seed: int
    step: int
    """Rollout batch of the training; of a pool 0."""
    id: str
    index: int
    question: str
    answer: str | None
    """The gold answer, if there is one."""
    completion: str
    correct: bool | None
    """The answer checker's verdict at the time; None: there is no gold answer."""
    correct_now: bool | None
    """Its verdict now."""
    old: float
    new: float
