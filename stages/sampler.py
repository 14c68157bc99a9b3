"""Protocols of text generation: samplers of completions, and judges that choose an option.

A `Sampler` takes and returns token ids, and knows nothing of text, tasks or rewards. An `Engine` is
a sampler that also gives next-token log-probs. A `Judge` takes messages.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from operator import add
from typing import Literal, Protocol, runtime_checkable


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """Sampled completion of a prompt."""

    token_ids: list[int]
    """The generated tokens, with the end-of-sequence token if it was reached."""
    logprobs: list[float]
    """log p of each token at the temperature it was drawn with (greedy decoding: at temperature 1).
    Same length as `token_ids`."""
    finish_reason: Literal["stop", "length", "step"]
    """`stop`: ended with the end-of-sequence token; `length`: truncated at the limit; `step`:
    broken off after a token of `break_after`, to be continued."""
    insertions: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """The environment's tokens in an episode of several turns: pairs of the number of sampled
    tokens before them, and their ids. The policy reads them; no loss or log-prob has them."""

    @property
    def ending(self) -> Literal["stop", "length"]:
        """`finish_reason` of a completion that was sampled without `break_after`."""
        assert self.finish_reason != "step", "sampled with `break_after`"
        return self.finish_reason


def token_limits(
    max_new_tokens: int | Sequence[int], prompts: Sequence[Sequence[int]]
) -> Sequence[int]:
    """Limit of new tokens for each prompt."""
    if isinstance(max_new_tokens, int):
        return [max_new_tokens] * len(prompts)
    assert len(max_new_tokens) == len(prompts), "a limit for each prompt"
    return max_new_tokens


def check_requests(
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    num_positions: int | None,
    num_samples: int = 1,
    temperature: float = 1.0,
) -> None:
    """Raise a ValueError if no engine can sample this.

    That is an empty prompt, several greedy completions of a prompt, or a prompt that together with
    its limit of new tokens exceeds `num_positions` tokens (None: no such limit).
    """
    if not all(prompts):
        raise ValueError("expected prompts of at least one token, found an empty one")
    if temperature == 0 and num_samples != 1:
        raise ValueError(
            "greedy decoding gives one completion of each prompt, "
            f"found num_samples {num_samples}: set it to 1, or the temperature above 0"
        )
    longest = max(map(add, map(len, prompts), limits), default=0)
    if num_positions is not None and longest > num_positions:
        raise ValueError(
            f"prompt and completion may take {longest} tokens, the engine has {num_positions} "
            f"positions: lower max_new_tokens or a judge's max_prompt_tokens, or leave out "
            f"the longest prompts"
        )


@runtime_checkable
class Sampler(Protocol):
    """Sampler that draws completions from a causal language model."""

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

        Sample j of prompt i is a function only of the weights, `prompts[i]`, `seeds[i]` and j (up
        to the rounding of a batched matrix product). `temperature` 0 means greedy decoding; then
        `num_samples` must be 1 and the seeds are not used. `max_new_tokens` is one limit for all
        prompts, or one for each. A completion is broken off after its first token of `break_after`,
        which it includes; its tokens are the same as without `break_after`. An end-of-sequence
        token always ends it.
        """
        ...


@runtime_checkable
class SessionSampler(Sampler, Protocol):
    """Sampler that can keep its cache between calls."""

    def session(self) -> AbstractContextManager[None]:
        """Context in which only the new tokens of a prompt that continues an earlier one are read.

        A prompt continues an earlier one if it begins with that and a sample of it.

        The weights must not change in this context.
        """
        ...


def open_session(sampler: Sampler) -> AbstractContextManager[None]:
    """The sampler's session; an empty context if it keeps nothing between calls."""
    return sampler.session() if isinstance(sampler, SessionSampler) else nullcontext()


@runtime_checkable
class ColocatedSampler(Sampler, Protocol):
    """Sampler with a copy of a policy in training, in memory of the trainer's device.

    Like every `Sampler` it samples from the policy's present weights, if `sleep` is called whenever
    the weights are about to change.
    """

    def sleep(self) -> None:
        """Free the memory until the next call of `sample`, which copies the weights again."""
        ...

    def close(self) -> None:
        """Free the memory for good; nothing can be sampled afterwards."""
        ...


@runtime_checkable
class Engine(Sampler, Protocol):
    """Sampler that also gives the log-probs of chosen tokens right after a prompt."""

    def next_logprobs(
        self, prompts: Sequence[Sequence[int]], token_ids: Sequence[int]
    ) -> Iterator[tuple[int, list[float]]]:
        """Number of each prompt, with log p(token | prompt) of `token_ids` at temperature 1.

        They come batch by batch, as they are computed.
        """
        ...

    def close(self) -> None:
        """Free its memory, except that of models that its caller holds.

        Call this before another model is loaded: an engine may hold all memory that was free.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A judge's choice between options, in answer to one message."""

    probabilities: list[float]
    """Probability of each option, in their order; they sum to 1."""
    mass: float
    """Probability of all options together, before they are normalised to sum to 1. Near 0 the model
    does not answer the question, and its choice means nothing."""
    num_prompt_tokens: int
    """Tokens of the prompt."""
    num_generated_tokens: int
    """Tokens generated: reasoning before the choice, and any that an endpoint adds."""
    first_token: str | None = None
    """The likeliest first token, option or not; None if the engine gives only the options'."""


def count_judge_tokens(judgements: Sequence[Judgement | None]) -> Counter[str]:
    """Cost of judgements in tokens: `read_tokens` and `generated_tokens`."""
    answered = [judgement for judgement in judgements if judgement is not None]
    return Counter(
        read_tokens=sum(judgement.num_prompt_tokens for judgement in answered),
        generated_tokens=sum(judgement.num_generated_tokens for judgement in answered),
    )


@runtime_checkable
class Judge(Protocol):
    """Language model that chooses between options."""

    def stream(self, messages: Sequence[str]) -> Iterator[tuple[int, Judgement | None]]:
        """Number and judgement of each message, as they come; None if a message is too long.

        A judgement is a function only of message and model, up to rounding.
        """
        ...


def judge_messages(judge: Judge, messages: Sequence[str]) -> list[Judgement | None]:
    """Judgement of each message, in their order."""
    judgements = dict(judge.stream(messages))
    return [judgements[number] for number in range(len(messages))]
