"""What a search found for one problem, judged, and what it spent."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemSearch:
    """One row of `data/search_solutions/<name>/per_problem.jsonl`.

    The accuracies are over what is left to chance, ties: 0 or 1 where there are none.
    """

    id: str
    num_solutions: int
    """Solutions that finished, kept or not: what the two votes count."""
    best: float
    """Whether the best-scored solution is right; of equal scores the mean."""
    weighted: float
    """Whether the answer with the greatest sum of scores is right."""
    majority: float
    """Whether the most frequent answer is right."""
    any_right: bool
    """Whether any of the solutions is right."""
    depth: int
    generated_tokens: int
    dropped_tokens: int
    read_tokens: int
    read_tokens_once: int
    scored_tokens: int
    scored_tokens_once: int
    """These six and `depth`: `SearchCost`."""
    flops: float
    """2 P for each token that a model of P parameters read or generated."""
    flops_once: float
    """With a prefix cache in both models."""
