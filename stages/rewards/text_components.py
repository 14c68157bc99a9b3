"""Components of a reward that look at a completion alone: its answer, form, length and script."""

import re
import unicodedata
from collections.abc import Collection
from typing import Literal

import torch
from pydantic import Field

from stages.algorithms.length_and_repetition import repeated_share, soft_overlong
from stages.params import Params
from stages.rewards.answer_checker import has_format, is_correct, states_one_answer
from stages.rewards.judged import Answered, Available, Judged, each


class Stated(Params):
    """1 where a completion states its final answer as it should, else 0."""

    kind: Literal["answer", "final_line", "boxed"]
    r"""`answer`: it is the gold one, by the answer checker; `final_line`: in the format that the
    demonstrations teach; `boxed`: exactly one, readable, in `\boxed{}`."""

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """1 or 0 of each."""
        if self.kind == "answer":
            return each(answered, lambda prompt, text: is_correct(text, prompt.answer))
        holds = has_format if self.kind == "final_line" else is_boxed
        return each(answered, lambda _, text: holds(text))


def is_boxed(text: str) -> bool:
    r"""Whether `text` states one readable answer, in `\boxed{...}`; a list of several is none."""
    return text.count("\\boxed") == 1 and "\\boxed{" in text and states_one_answer(text)


TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_WHOLE = re.compile(r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*", re.DOTALL)


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
    blocks = _WHOLE.fullmatch(text) if tags_once(text) == len(TAGS) else None
    return blocks is not None and all(block.strip() for block in blocks.groups())


class LengthPenalty(Params):
    """value = - tokens / per, the end-of-sequence token included."""

    kind: Literal["length_penalty"]
    per: int = Field(gt=0)
    """Tokens that cost 1 together."""

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """One value for each completion."""
        return Judged(totals=[-len(sample.token_ids) / self.per for sample in answered.samples])


class LengthTarget(Params):
    """value = - |tokens - target| / target, the end-of-sequence token included.

    Aggarwal and Welleck, "L1" (2025), eq. 1, https://arxiv.org/abs/2503.04697, with
    alpha = weight / target. Departure: one target for all prompts, which does not stand in them.
    """

    kind: Literal["length_target"]
    target: int = Field(gt=0)
    """Tokens."""

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """One value for each completion."""
        lengths = [len(sample.token_ids) for sample in answered.samples]
        return Judged(totals=[-abs(length - self.target) / self.target for length in lengths])


class NgramRepetition(Params):
    """value = - (1 - different n-grams / n-grams), from -1 to 0.

    Yeo et al., "Demystifying Long Chain-of-Thought Reasoning in LLMs" (2025), appendix,
    https://arxiv.org/abs/2502.03373, penalise each token of a repeated n-gram. Departure: one
    value for the completion, over tokens and not words, so that it works in every script.
    """

    kind: Literal["ngram_repetition"]
    n: int = Field(gt=0)
    """Tokens in an n-gram."""

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """One value for each completion."""
        return Judged(totals=[-repeated_share(one.token_ids, self.n) for one in answered.samples])


class Overlong(Params):
    """DAPO's soft punishment, from 0 to -1: see `soft_overlong`."""

    kind: Literal["overlong"]
    buffer: int = Field(gt=0)
    """Tokens before max_new_tokens over which the punishment grows."""

    def __call__(self, answered: Answered, available: Available) -> Judged:
        """One value for each completion."""
        lengths = torch.tensor([len(sample.token_ids) for sample in answered.samples])
        found = soft_overlong(lengths, max_length=available.max_new_tokens, buffer=self.buffer)
        return Judged(totals=found.tolist())


Script = Literal[
    "latin", "greek", "cyrillic", "armenian", "hebrew", "arabic", "devanagari", "bengali", "tamil",
    "thai", "georgian", "hangul", "hiragana", "katakana", "cjk",
]  # fmt: skip


class Language(Params):
    """The share of a completion's letters that are of the expected scripts; 1 without letters.

    Guo et al., "DeepSeek-R1" (2025), section 2.3.2, https://arxiv.org/abs/2501.12948, reward the
    share of words in the target language. Departure: scripts, by the names that Unicode gives
    letters, so no model guesses a language; languages that share a script are one.
    """

    kind: Literal["language"]
    scripts: list[Script] = Field(min_length=1)
    """What letters may be: [latin], [cjk, hiragana, katakana]; with formulas, greek too."""

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """See `share_in`."""
        return each(answered, lambda _, text: share_in(text, self.scripts))


def share_in(text: str, scripts: Collection[str]) -> float:
    """Letters of `scripts` over all letters.

    A letter's script is the first word of its Unicode name: `LATIN SMALL LETTER A`. Marks that two
    scripts share are of both (`KATAKANA-HIRAGANA PROLONGED SOUND MARK`); ideographic ones are cjk.
    Look-alikes (`FULLWIDTH LATIN`, `MATHEMATICAL BOLD`) are of no script.
    """
    names = [unicodedata.name(letter, "").lower() for letter in text if letter.isalpha()]
    firsts = [name.partition(" ")[0].replace("ideographic", "cjk") for name in names]
    hits = sum(not set(first.split("-")).isdisjoint(scripts) for first in firsts)
    return hits / len(firsts) if firsts else 1.0


TextComponent = Stated | Tags | LengthPenalty | LengthTarget | NgramRepetition | Overlong | Language
