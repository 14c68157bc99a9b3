"""A demonstration for supervised fine-tuning."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Demonstration:
    """One row of `demonstrations.jsonl` (the prompt/completion shape)."""

    id: str
    task: str
    prompt: str
    prompt_ids: list[int]
    completion: str
    completion_ids: list[int]
    """`completion` tokenised, followed by the end-of-sequence token."""
