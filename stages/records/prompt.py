"""A problem ready to be given to a model."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """One row of `data/prepare_data/prompts/<split>.jsonl`."""

    id: str
    task: str
    """What is asked of the model; `solve` for a problem to be answered."""
    question: str
    prompt: str
    """The rendered text (template, chat template, begin-of-sequence token included)."""
    prompt_ids: list[int]
    """`prompt` tokenised, once, here: no later stage tokenises it again."""
    answer: str
    """The gold final answer."""
