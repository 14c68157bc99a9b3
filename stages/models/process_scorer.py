"""A process reward model on sampled completions: their steps, and how right each is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from stages.models import model_tokenizer, policy, process_head
from stages.models.batch import Group
from stages.models.device import ComputeConfig
from stages.models.process_head import Solution
from stages.rewards.step_solutions import split_steps


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessScorer:
    """A process reward model, and what it takes to read completions with it."""

    model: PreTrainedModel
    decode: Callable[[Sequence[int]], str]
    pad_id: int
    compute: ComputeConfig

    def split(self, completion_ids: Sequence[int]) -> list[list[int]]:
        """The steps of a completion, as in the rows that the model learned from."""
        return split_steps(completion_ids, self.decode, self.model.config.step_separator)

    def __call__(self, solutions: Sequence[Solution]) -> list[list[float]]:
        """P(right so far) after each step, in eval mode."""
        return process_head.step_scores(self.model, solutions, self.compute, self.pad_id)

    def num_positions(self, solutions: Sequence[Solution]) -> int:
        """Tokens that it reads of them, step tokens included."""
        numbers, row_tokens = range(len(solutions)), self.compute.row_tokens
        parts = process_head.groups(solutions, numbers, self.model, row_tokens)
        return sum(group.length() for group in parts)

    def step_ends(self, num_tokens: int) -> frozenset[int]:
        """The tokens with the separator in their text, of the first `num_tokens` of the tokenizer.

        Raises:
            ValueError: there is none: then no single token says where a step ends.
        """
        separator = self.model.config.step_separator
        found = frozenset(one for one in range(num_tokens) if separator in self.decode([one]))
        if not found:
            raise ValueError(
                f"no token of the tokenizer has the separator {separator!r} in its text, so "
                f"sampling cannot be broken off where a step ends: train the process model with a "
                f"separator that is one (of the preset), such as a newline."
            )
        return found


def load(path: Path, compute: ComputeConfig, device: torch.device) -> ProcessScorer:
    """The process reward model at `path`, with its own tokenizer."""
    tokenizer = model_tokenizer.load(path)
    return ProcessScorer(
        model=process_head.load(path, compute, device),
        decode=policy.decoder(tokenizer),
        pad_id=model_tokenizer.pad_id(tokenizer),
        compute=compute,
    )


def completion_steps(scorer: ProcessScorer, groups: Sequence[Group]) -> list[list[float]]:
    """P(right so far) after each step of each completion of `groups`, in turn."""
    return scorer(
        [
            Solution(prompt_ids=group.prompt_ids, steps=scorer.split(ids))
            for group in groups
            for ids in group.completions
        ]
    )
