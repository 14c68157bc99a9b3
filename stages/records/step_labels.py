"""A solution in steps, with a label after each of them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class StepLabels:
    """One row of `steps.jsonl`.

    A step's label says whether the solution up to and including this step is free of errors.
    The first error is the first step whose label is False or below 0.5; -1 where there is none.
    """

    id: str
    """The problem's id."""
    index: int
    """The completion's index in its pool; 0 for imported rows."""
    prompt: str
    prompt_ids: list[int]
    steps: list[str]
    """The text of each step."""
    step_ids: list[list[int]]
    """The tokens of each step, as sampled (or tokenised step by step), without a step token:
    joined they are the completion."""
    labels: list[float | None]
    """P(the solution is still right after this step); None: not labelled."""
    num_completions: list[int]
    """Completions behind each label; 0: not an estimate, but known or a person's."""
    true_labels: list[bool] | None
    """The known truth of each step, where there is one."""
    correct: bool | None
    """Whether the final answer is right, where that is known."""
    source: str
    """Who labelled it: `math_shepherd`, `truth`, `prm800k`, `math_aps`, `processbench`."""
