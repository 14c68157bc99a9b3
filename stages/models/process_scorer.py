"""A process reward model on sampled completions: their steps, and how right each is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from transformers import PreTrainedModel

from stages.algorithms.selection import step_scores
from stages.models import model_tokenizer, policy, process_head
from stages.models.batch import Group
from stages.models.device import ComputeConfig
from stages.models.ensemble import Scores
from stages.models.process_head import Solution
from stages.params import Params
from stages.rewards.steps import split_steps

PROCESS_MODELS = "train_process_reward/"
"""What the words of process reward models start with."""
AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "last": step_scores.last,
    "min": step_scores.lowest,
    "product": step_scores.product,
    "mean": step_scores.mean,
}


class ProcessScore(Params):
    """How the scores of its steps become the score of a completion."""

    kind: Literal["last", "min", "product", "mean"]
    """See `selection/step_scores`."""


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

    def num_tokens(self, solutions: Sequence[Solution]) -> int:
        """Tokens that the model reads to score these, prompts that they share counted so."""
        numbers = range(len(solutions))
        parts = process_head.groups(solutions, numbers, self.model, self.compute.row_tokens)
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
                f"separator that is one (train_process_reward.separator), such as a newline."
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


def completion_scores(
    scorer: ProcessScorer, config: ProcessScore, groups: Sequence[Group]
) -> Scores:
    """A score of each completion of `groups`, in turn; nobody disagrees with the one model."""
    solutions = [
        Solution(prompt_ids=group.prompt_ids, steps=scorer.split(ids))
        for group in groups
        for ids in group.completions
    ]
    values = torch.tensor([AGGREGATES[config.kind](own) for own in scorer(solutions)])
    return Scores(values=values, disagreement=torch.zeros_like(values))
