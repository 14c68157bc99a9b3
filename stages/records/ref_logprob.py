"""How likely the frozen reference finds a completion."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RefLogprob:
    """One row of `data/compute_ref_logprobs/ref_logprobs.jsonl`."""

    id: str
    """The problem's id; with the token ids it names the completion."""
    completion_ids: list[int]
    logprob_sum: float
    """log p of the whole completion at temperature 1, every bit of the float32 kept."""
