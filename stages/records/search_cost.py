"""What a search spent on one problem, in tokens."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchCost:
    """Tokens that went through a model; the two `_once` are what would have with a prefix cache."""

    id: str
    """The problem's id."""
    depth: int
    """Rounds of sampling until no solution was left to go on with."""
    generated_tokens: int
    """Sampled from the policy, those of dropped candidates included."""
    dropped_tokens: int
    """Of these, in no solution that the search ended with."""
    read_tokens: int
    """The policy's: prompt and solution so far, once for each place at each depth. So the engine
    on transformers reads them; vLLM's prefix cache, which it has on, reads most of them once."""
    read_tokens_once: int
    """The prompt."""
    scored_tokens: int
    """The process model's: prompt, solution so far and step tokens, for each different candidate
    at each depth; candidates of one problem share a reading of the prompt."""
    scored_tokens_once: int
    """The prompt, and each different step with its step token."""
