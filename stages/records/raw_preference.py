"""A pair of answers as a source has it, before any template or tokenizer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation."""

    role: str
    """`system`, `user` or `assistant`."""
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RawPreference:
    """What came before both answers, and the answers."""

    turns: tuple[Turn, ...]
    """The prompt as a conversation; the last turn is the user's."""
    plain_prompt: str
    """The prompt as text, for a tokenizer without a chat template."""
    plain_lead: str
    """What stands between `plain_prompt` and an answer: a space after `Assistant:`, or nothing."""
    chosen: str
    rejected: str
    probability: float
    """Probability that `chosen` is the better one."""
    line: int
    """Where the row stood, from 1."""
