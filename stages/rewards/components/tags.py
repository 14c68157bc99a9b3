"""Reasoning and answer between tags, as DeepSeek-R1-Zero was asked to write them."""

import re
from typing import Literal

from stages.params import Params
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.each_completion import each
from stages.rewards.judged import Judged

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_WHOLE = re.compile(
    r"\s*<think>(?P<think>.*)</think>\s*<answer>(?P<answer>.*)</answer>\s*", re.DOTALL
)


class Tags(Params):
    """`<think> working </think> <answer> 7 </answer>`.

    Guo et al., "DeepSeek-R1" (2025), section 2.2.2, https://arxiv.org/abs/2501.12948, does not
    say how its format reward is computed. The two ways here are those of its reproductions.
    """

    kind: Literal["tags"]
    credit: Literal["whole", "per_tag"]
    """`whole`: 1 for the whole format, else 0; `per_tag`: 1 for each of the four tags that
    occurs exactly once, so the weight is what a tag is worth."""

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """See `is_tagged` and `tags_once`."""
        value = is_tagged if self.credit == "whole" else tags_once
        return each(answered, lambda _, text: value(text))


def tags_once(text: str) -> int:
    """How many of the four tags occur exactly once."""
    return sum(text.count(tag) == 1 for tag in TAGS)


def is_tagged(text: str) -> bool:
    """Whether `text` is nothing but both blocks, in order, neither of them blank."""
    if tags_once(text) != len(TAGS):
        return False
    match = _WHOLE.fullmatch(text)
    return match is not None and all(block.strip() for block in match.groups())
