"""Components of a reward that look at a completion alone: its answer, form, length and script."""

import re
import unicodedata
from collections.abc import Collection
from itertools import islice
from typing import Literal

import torch
from pydantic import Field

from stages.algorithms.repetition import repeated_share
from stages.algorithms.soft_overlong import soft_overlong
from stages.params import Params
from stages.rewards.answer_checker import canonical, has_format, is_correct, statements
from stages.rewards.judged import Answered, Available, Judged, each


class Answer(Params):
    """1 where the answer checker takes the last final answer for the gold one, else 0."""

    kind: Literal["answer"]

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """See `answer_checker.is_correct`."""
        return each(answered, lambda prompt, text: is_correct(text, prompt.answer))


class FinalLine(Params):
    """1 where a completion has the format that the demonstrations teach, else 0."""

    kind: Literal["final_line"]

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """See `answer_checker.has_format`."""
        return each(answered, lambda _, text: has_format(text))


_BOXED = re.compile(r"\\boxed\{")


class Boxed(Params):
    r"""1 where a completion states exactly one final answer, readable, in `\boxed{}`, else 0."""

    kind: Literal["boxed"]

    def __call__(self, answered: Answered, available: Available) -> Judged:  # noqa: ARG002
        """See `is_boxed`."""
        return each(answered, lambda _, text: is_boxed(text))


def is_boxed(text: str) -> bool:
    r"""Whether `\boxed{...}` is the one answer that `text` states, and can be read.

    Several boxes, or a box beside `#### n`, are a list of answers and count as none.
    """
    if text.count("\\boxed") != 1 or not _BOXED.search(text):
        return False
    stated = list(islice(statements(text), 2))
    return len(stated) == 1 and canonical(stated[0]) is not None


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
        shares = [repeated_share(sample.token_ids, self.n) for sample in answered.samples]
        return Judged(totals=[-share for share in shares])


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
    letters = [character for character in text if character.isalpha()]
    if not letters:
        return 1.0
    return sum(not scripts_of(letter).isdisjoint(scripts) for letter in letters) / len(letters)


def scripts_of(letter: str) -> set[str]:
    """The scripts that it may be of, by its name; not all of them are a `Script`."""
    first = unicodedata.name(letter, "").partition(" ")[0].lower()
    return {"cjk"} if first == "ideographic" else set(first.split("-"))
