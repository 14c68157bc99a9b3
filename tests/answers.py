"""Completions for rewards to judge: texts, their prompts, and their tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stages.records.problems import Prompt
from stages.rewards.completion_rewards import RewardModels
from stages.sampler import Sample

NOTHING = RewardModels(max_new_tokens=1)
"""Enough for components that look at the completions alone."""


@dataclass
class Answers:
    """Completions of prompts `p0`, `p1`, ..., `group_size` of each; golds are the prompts'."""

    texts: Sequence[str]
    golds: Sequence[str] = ("7",)
    tokens: Sequence[Sequence[int]] = field(default_factory=list)
    """Where a reward looks at tokens; else one token a character."""
    group_size: int = 1000

    @property
    def samples(self):
        tokens = self.tokens or [[ord(character) for character in text] for text in self.texts]
        return [
            Sample(token_ids=list(ids), logprobs=[0.0] * len(ids), finish_reason="stop")
            for ids in tokens
        ]

    @property
    def groups(self):
        return [index // self.group_size for index in range(len(self.texts))]

    def prompt(self, index):
        group = self.groups[index]
        return Prompt(
            id=f"p{group}", task="solve", question="What is it?", prompt="", prompt_ids=[1],
            answer=self.golds[group],
        )  # fmt: skip
