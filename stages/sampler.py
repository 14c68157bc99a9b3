"""What the loops and stages ask of a model: completions, or which of a few options it chooses.

A `Sampler` has token ids in and token ids out, and knows nothing of text, tasks or rewards. A
`Judge`, a judge, takes messages; an `Engine` is a sampler with what a local model needs to be
one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import Literal, Protocol, runtime_checkable


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One completion of one prompt."""

    token_ids: list[int]
    """The generated tokens, the end-of-sequence token included when it was reached."""
    logprobs: list[float]
    """log p(token) of each, under the tempered distribution it was drawn from
    (under the untempered one for greedy decoding). Same length as `token_ids`."""
    finish_reason: Literal["stop", "length", "step"]
    """`stop`: ended with the end-of-sequence token; `length`: cut at the limit; `step`: broken
    off after a token of `break_after`, to be gone on with."""

    @property
    def ending(self) -> Literal["stop", "length"]:
        """How a completion ended that was not asked to break off."""
        assert self.finish_reason != "step", "no `break_after` was asked for"
        return self.finish_reason


def token_limits(
    max_new_tokens: int | Sequence[int], prompts: Sequence[Sequence[int]]
) -> Sequence[int]:
    """The limit of each prompt."""
    if isinstance(max_new_tokens, int):
        return [max_new_tokens] * len(prompts)
    assert len(max_new_tokens) == len(prompts), "a limit for each prompt"
    return max_new_tokens


def check_requests(
    prompts: Sequence[Sequence[int]],
    most: Sequence[int],
    positions: int | None,
    num_samples: int = 1,
    temperature: float = 1.0,
) -> None:
    """Refuse what no engine can draw: up to `most` tokens after each prompt, in `positions`."""
    if not all(prompts):
        raise ValueError("expected prompts of at least one token, found an empty one")
    if temperature == 0 and num_samples != 1:
        raise ValueError(
            "greedy decoding gives one completion of each prompt, "
            f"found num_samples {num_samples}: set it to 1, or the temperature above 0"
        )
    longest = max(map(add, map(len, prompts), most), default=0)
    if positions is not None and longest > positions:
        raise ValueError(
            f"prompt and completion may take {longest} tokens, the engine has {positions} "
            f"positions: lower max_new_tokens or a judge's max_prompt_tokens, or drop the longest "
            f"prompts in prepare_data"
        )


@runtime_checkable
class Sampler(Protocol):
    """Draws completions from a causal language model."""

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        *,
        num_samples: int,
        temperature: float,
        max_new_tokens: int | Sequence[int],
        break_after: frozenset[int] = frozenset(),
    ) -> list[list[Sample]]:
        """`num_samples` completions of each prompt, in the order of `prompts`.

        Sample j of prompt i is a function of the weights, `prompts[i]`, `seeds[i]` and j, and of
        nothing else in the call (up to the rounding of a batched matrix product). `temperature` 0
        means greedy decoding; then `num_samples` must be 1 and the seeds are not used.
        `max_new_tokens` is one limit for all, or one for each prompt. After a
        token of `break_after`, which it keeps, a completion is broken off; its tokens until there
        are those that it has without. An end-of-sequence token ends it, named there or not.
        """
        ...


@runtime_checkable
class ColocatedSampler(Sampler, Protocol):
    """A sampler of a policy in training that has a copy of it, in memory of the trainer's device.

    What it draws is drawn from the policy as it is at the time of the call, as of every `Sampler`.
    """

    def rest(self) -> None:
        """Leave the memory to the trainer until the next call of `sample`."""
        ...

    def close(self) -> None:
        """Free the memory; nothing is sampled any more."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """How a model answers one message that asks for one of the options."""

    probabilities: list[float]
    """Of each option, in their order; they sum to 1."""
    mass: float
    """The probability of all options together, before they are made to sum to 1. Near 0 the model
    does not answer the question, and its choice means nothing."""
    num_prompt_tokens: int
    """Tokens read."""
    num_generated_tokens: int
    """Tokens written: the reasoning before the choice, and what an endpoint cannot help writing."""
    first_token: str | None = None
    """The likeliest first token, option or not; None where the engine tells the options' alone."""


def count_judge_tokens(choices: Sequence[Judgement | None]) -> Counter[str]:
    """What the choices cost: `read_tokens` and `generated_tokens`."""
    made = [choice for choice in choices if choice is not None]
    return Counter(
        read_tokens=sum(choice.num_prompt_tokens for choice in made),
        generated_tokens=sum(choice.num_generated_tokens for choice in made),
    )


@runtime_checkable
class Judge(Protocol):
    """A model that chooses between options."""

    def choose(self, messages: Sequence[str]) -> list[Judgement | None]:
        """The choice for each message, a function of it and the model alone, up to rounding.

        None where a message is longer than the model may read.
        """
        ...


@runtime_checkable
class Engine(Sampler, Protocol):
    """A sampler that also knows how likely its model finds given tokens right after a prompt."""

    def next_logprobs(
        self, prompts: Sequence[Sequence[int]], token_ids: Sequence[int]
    ) -> list[list[float]]:
        """log p(token | prompt) of each of `token_ids`, at temperature 1, for each prompt."""
        ...

    def close(self) -> None:
        """Free what it holds besides models that others gave it; it is not asked any more.

        Wherever another model is loaded afterwards: an engine may hold all memory that was free.
        """
        ...
