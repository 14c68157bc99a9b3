"""The rule reward of rollouts: is the answer right, is it in the format."""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from stages.algorithms.advantages.reward_parts import normalised_sum, weighted_sum
from stages.params import Params
from stages.records.prompt import Prompt
from stages.rewards.answer_checker import is_correct
from stages.rewards.format_reward import has_format
from stages.rewards.judged import Judged


class SumParts(Params):
    """The parts times their weights, added."""

    kind: Literal["sum"]


class NormaliseParts(Params):
    """Each part normalised within its group first: a weight is then a share of the signal."""

    kind: Literal["normalise"]
    ddof: int = Field(ge=0, le=1)
    """n - ddof divides a part's variance."""
    eps: float = Field(gt=0)
    """Added to its standard deviation."""


class RuleRewardConfig(Params):
    """The rule reward's parts and their weights."""

    answer: float = Field(ge=0)
    """Weight of the final answer being right."""
    format: float = Field(ge=0)
    """Weight of showing working and then one final answer."""
    combine: Annotated[SumParts | NormaliseParts, Field(discriminator="kind")]


@runtime_checkable
class Answered(Protocol):
    """Completions with their prompts, in the same order."""

    @property
    def texts(self) -> Sequence[str]:
        """The completions, decoded."""
        ...

    @property
    def groups(self) -> Sequence[int]:
        """Of each completion, the number of its prompt."""
        ...

    def prompt(self, index: int) -> Prompt:
        """The prompt of a completion."""
        ...


def rule(rollouts: Answered, config: RuleRewardConfig) -> Judged:
    """answer * [right] + format * [well formed] for each completion, or with normalised parts."""
    found = parts(rollouts)
    weights = torch.tensor([config.answer, config.format])
    match config.combine:
        case SumParts():
            totals = weighted_sum(found, weights)
        case NormaliseParts(ddof=ddof, eps=eps):
            every = torch.ones(found.shape[1], dtype=torch.bool)
            groups = torch.tensor(rollouts.groups)
            totals = normalised_sum(found, weights, groups, counted=every, ddof=ddof, eps=eps)
    return Judged(totals=totals.tolist())


def parts(rollouts: Answered) -> Float[Tensor, "part batch"]:
    """1 where the answer is right; 1 where the format is kept."""
    form = [has_format(text) for text in rollouts.texts]
    return torch.tensor([correct(rollouts), form], dtype=torch.float32)


def correct(rollouts: Answered) -> list[bool]:
    """The answer checker's verdict on each completion: the true reward."""
    return [is_correct(text, rollouts.prompt(i).answer) for i, text in enumerate(rollouts.texts)]
