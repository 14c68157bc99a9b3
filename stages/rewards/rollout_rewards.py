"""The true reward of completions, whatever they were rewarded for."""

from stages.rewards.answer_checker import is_correct
from stages.rewards.answered import Answered


def correct(answered: Answered) -> list[bool]:
    """The answer checker's verdict on each completion."""
    return [is_correct(text, answered.prompt(i).answer) for i, text in enumerate(answered.texts)]
