"""What the stages ask of a judge: which of a few options does a model choose, and how surely.

`Chooser` takes messages; `NextToken` is what an engine has to offer for a local model to be one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """How a model answers one message that asks for one of the options."""

    probabilities: list[float]
    """Of each option, in their order; they sum to 1."""
    mass: float
    """The probability that the model gives to all options together, before they are made to
    sum to 1. Near 0 the model does not answer the question, and its choice means nothing."""
    num_prompt_tokens: int
    """Tokens read."""
    num_generated_tokens: int
    """Tokens written: the reasoning before the choice, and what an endpoint cannot help writing."""
    first_token: str | None = None
    """The likeliest first token, option or not; None where the engine tells the options' alone."""


def tokens(choices: Sequence[Choice | None]) -> Counter[str]:
    """What the choices cost: `read_tokens` and `generated_tokens`."""
    made = [choice for choice in choices if choice is not None]
    return Counter(
        read_tokens=sum(choice.num_prompt_tokens for choice in made),
        generated_tokens=sum(choice.num_generated_tokens for choice in made),
    )


@runtime_checkable
class Chooser(Protocol):
    """A model that chooses between options."""

    def choose(self, messages: Sequence[str]) -> list[Choice | None]:
        """The choice for each message; None where a message is longer than the model may read.

        A choice is a function of the model and its message, and of nothing else in the call (up
        to the rounding of a batched matrix product).
        """
        ...


@runtime_checkable
class NextToken(Protocol):
    """Knows how likely a causal language model finds given tokens right after a prompt."""

    def next_logprobs(
        self, prompts: Sequence[Sequence[int]], token_ids: Sequence[int]
    ) -> list[list[float]]:
        """log p(token | prompt) of each of `token_ids`, at temperature 1, for each prompt."""
        ...
