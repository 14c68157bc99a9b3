"""What a reward is given: completions with their prompts."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from stages.records.problems import Prompt
from stages.sampler import Sample


@runtime_checkable
class Answered(Protocol):
    """Completions with their prompts, in the same order."""

    @property
    def texts(self) -> Sequence[str]:
        """The completions, decoded, without special tokens."""
        ...

    @property
    def samples(self) -> Sequence[Sample]:
        """The completions as they were sampled, in tokens."""
        ...

    @property
    def groups(self) -> Sequence[int]:
        """Of each completion, the number of its prompt."""
        ...

    def prompt(self, index: int) -> Prompt:
        """The prompt of a completion."""
        ...
