"""What a process model says of one solution."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPrediction:
    """One row of `data/evaluate_process_reward/<name>/predictions.jsonl`."""

    id: str
    """The problem's id."""
    index: int
    """The completion's index, as in steps.jsonl."""
    scores: list[float]
    """P(right) of each step."""
    predicted: int
    """The first step called wrong; -1: none."""
    first_error: int
    """The first step that is wrong; -1: none."""
