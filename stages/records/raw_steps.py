"""A solution in labelled steps as a source has it, before any template or tokenizer."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RawSteps:
    """One solution, whole or a prefix; the lists have one entry a step."""

    id: str | None
    """The source's own; None: what is asked names the problem."""
    line: int
    """Where the row stood, from 1."""
    question: str
    steps: list[str]
    labels: list[float | None]
    num_completions: list[int]
    true_labels: list[bool] | None
    correct: bool | None
    finished: bool
    """Whether the last step ends the solution; otherwise a prefix was labelled."""
    source: str
