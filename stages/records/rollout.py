"""A completion as reinforcement learning used it, so that a run can be replayed."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """One row of `data/train_{ppo,grpo}/<policy>/rollouts.jsonl`."""

    step: int
    """The optimizer step's rollout batch, from 0."""
    id: str
    """The problem's id."""
    index: int
    """Sample number among the completions of the problem in this step."""
    completion: str
    completion_ids: list[int]
    finish_reason: Literal["stop", "length"]
    reward: float
    """What the algorithm maximises, before any KL term."""
    correct: bool
    """The answer checker's verdict (the true reward)."""
