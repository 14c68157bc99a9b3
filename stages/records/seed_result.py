"""What a policy trained with one seed did on one problem."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedResult:
    """One row of `data/compare/<name>/per_problem.jsonl`."""

    policy: str
    seed: int
    """Of the training and the sampling; the problem is the same for all seeds."""
    id: str
    """The problem's id."""
    num_samples: int
    """N."""
    num_correct: int
    """Right completions among them."""
    greedy_correct: bool
