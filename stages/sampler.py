"""What the loops and stages ask of a text generator; the engines implement it.

Token ids in, token ids out: a sampler knows nothing of text, tasks or rewards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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
    off, to be gone on with, after a token that it was asked to break off after."""

    @property
    def ending(self) -> Literal["stop", "length"]:
        """How a completion ended that was not asked to break off."""
        assert self.finish_reason != "step", "no `break_after` was asked for"
        return self.finish_reason


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
        max_new_tokens: int,
        break_after: frozenset[int] = frozenset(),
    ) -> list[list[Sample]]:
        """`num_samples` completions of each prompt, in the order of `prompts`.

        Sample j of prompt i is a function of the weights, `prompts[i]`, `seeds[i]`
        and j, and of nothing else in the call (up to the rounding of a batched
        matrix product). `temperature` 0 means greedy decoding; then `num_samples`
        must be 1 and the seeds are not used. After a token of `break_after`, which
        it keeps, a completion is broken off; its tokens until there are those that
        it has without. An end-of-sequence token ends it whether named there or not.
        """
        ...
