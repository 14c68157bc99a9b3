"""A completion that a policy sampled."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One row of a candidate pool."""

    id: str
    """The problem's id."""
    index: int
    """0 to N-1 among the samples of the problem; 0 for the greedy completion."""
    completion: str
    """Decoded text without special tokens."""
    completion_ids: list[int]
    logprob_sum: float
    """Sum of the sampler's log-probs of `completion_ids`."""
    finish_reason: Literal["stop", "length"]
    seed: int
    """The seed of the request (one for each problem)."""
