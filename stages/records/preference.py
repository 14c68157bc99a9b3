"""A pair of completions of one prompt, one preferred."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Preference:
    """One row of `data/label_preferences/<split>.jsonl` (the chosen/rejected shape)."""

    id: str
    """The problem's id."""
    prompt: str
    prompt_ids: list[int]
    chosen: str
    chosen_ids: list[int]
    """As sampled, the end-of-sequence token included: never tokenised again."""
    rejected: str
    rejected_ids: list[int]
    probability: float
    """Probability that `chosen` is the better one: 1.0 for a verifier's label."""
    source: str
    """Who labelled it: `verifier`, `ai` (a judge), `constitution` (a revision over what it revised)
    or `human`."""
