"""Completions with their original reward, and with that of another reward function."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescored:
    """A completion with both rewards: a row of `rescored.jsonl`."""

    seed: int
    step: int
    """Number of the rollout batch in training; 0 for a pool."""
    id: str
    index: int
    question: str
    answer: str | None
    """The gold answer, if there is one."""
    completion: str
    correct: bool | None
    """The answer checker's verdict at the time; None: there is no gold answer."""
    correct_now: bool | None
    """The answer checker's verdict now."""
    old: float
    new: float
