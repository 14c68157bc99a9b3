"""The rule reward of rollouts: is the answer right, is it in the format."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pydantic import Field

from stages.params import Params
from stages.records.prompt import Prompt
from stages.rewards.answer_checker import is_correct
from stages.rewards.format_reward import has_format


class RuleRewardConfig(Params):
    """Weights of the rule reward's parts."""

    answer: float = Field(ge=0)
    """Added when the final answer is right."""
    format: float = Field(ge=0)
    """Added when the completion shows working and then one final answer."""


@runtime_checkable
class Answered(Protocol):
    """Completions with their prompts, in the same order."""

    @property
    def texts(self) -> Sequence[str]:
        """The completions, decoded."""
        ...

    def prompt(self, index: int) -> Prompt:
        """The prompt of a completion."""
        ...


def rule(rollouts: Answered, config: RuleRewardConfig) -> list[float]:
    """answer * [right] + format * [well formed], for each completion."""
    return [
        config.answer * right + config.format * has_format(text)
        for text, right in zip(rollouts.texts, correct(rollouts), strict=True)
    ]


def correct(rollouts: Answered) -> list[bool]:
    """The answer checker's verdict on each completion: the true reward."""
    return [is_correct(text, rollouts.prompt(i).answer) for i, text in enumerate(rollouts.texts)]
