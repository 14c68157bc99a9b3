"""All that one problem's large pool of completions is worth, by truth and by proxies."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredPool:
    """One row of `data/evaluate_best_of_n/<name>/rows.jsonl`; every list is in drawing order."""

    id: str
    """The problem's id."""
    correct: list[bool]
    """Whether the final answer of each completion is right."""
    reward_model: list[float] | None
    """Scores by the single reward model; null where there is none."""
    ensemble: list[float] | None
    """Scores by the ensemble."""
    num_distinct: int
    """Different completions: only these were scored."""
