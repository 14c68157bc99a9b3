"""Components of a reward that look at a completion alone: its answer, form, length and script.

Lengths are in tokens, the end-of-sequence token included.
"""

import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import Literal

import torch

from stages.algorithms.length_and_repetition import repeated_share, soft_overlong
from stages.rewards.answer_checker import Forms, has_format, solves_problem, states_one_answer
from stages.rewards.completion_rewards import CompletionRewards, Completions, score_each
from stages.rewards.final_answer import strip_thinking


def answer(completions: Completions) -> CompletionRewards:
    """1 where the final answer is the gold one, by the answer checker, else 0."""
    return score_each(completions, solves_problem)


def final_line(completions: Completions) -> CompletionRewards:
    """1 where a completion is in the format that the demonstrations teach, else 0."""
    return score_each(
        completions, lambda prompt, text: has_format(prompt.whole(text), prompt.answer_forms)
    )


def boxed(completions: Completions) -> CompletionRewards:
    r"""1 where exactly one answer is stated, readable, in `\boxed{}`, else 0."""
    return score_each(
        completions,
        lambda prompt, text: is_boxed(strip_thinking(prompt.whole(text)), prompt.answer_forms),
    )


def is_boxed(text: str, forms: Forms = None) -> bool:
    r"""Whether `text` states one readable answer, in `\boxed{...}`; a list of several is none."""
    return text.count("\\boxed") == 1 and "\\boxed{" in text and states_one_answer(text, forms)


TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_WHOLE = re.compile(r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*", re.DOTALL)


def tags(completions: Completions, credit: Literal["whole", "per_tag"]) -> CompletionRewards:
    """`<think> working </think> <answer> 7 </answer>`.

    `whole`: 1 for the whole format, else 0; `per_tag`: 1 for each of the four tags that occurs
    exactly once, so the weight is what a tag is worth. Guo et al., "DeepSeek-R1" (2025), section
    2.2.2, https://arxiv.org/abs/2501.12948, does not say how its format reward is computed. The two
    ways here are those of its reproductions.
    """
    value = is_tagged if credit == "whole" else tags_once
    return score_each(completions, lambda prompt, text: value(prompt.whole(text)))


def tags_once(text: str) -> int:
    """Number of the four tags that occur exactly once."""
    return sum(text.count(tag) == 1 for tag in TAGS)


def is_tagged(text: str) -> bool:
    """Whether `text` is nothing but both blocks, in order, neither of them blank."""
    blocks = _WHOLE.fullmatch(text) if tags_once(text) == len(TAGS) else None
    return blocks is not None and all(block.strip() for block in blocks.groups())


def length_penalty(completions: Completions, per: int) -> CompletionRewards:
    """- tokens / per."""
    return CompletionRewards(
        totals=[-len(sample.token_ids) / per for sample in completions.samples]
    )


def length_target(completions: Completions, target: int) -> CompletionRewards:
    """- |tokens - target| / target.

    Aggarwal and Welleck, "L1" (2025), eq. 1, https://arxiv.org/abs/2503.04697, with
    alpha = weight / target. Departure: one target for all prompts, which does not stand in them.
    """
    lengths = [len(sample.token_ids) for sample in completions.samples]
    return CompletionRewards(totals=[-abs(length - target) / target for length in lengths])


def ngram_repetition(completions: Completions, n: int) -> CompletionRewards:
    """- (1 - different n-grams / n-grams), from -1 to 0, over tokens.

    Yeo et al., "Demystifying Long Chain-of-Thought Reasoning in LLMs" (2025), appendix,
    https://arxiv.org/abs/2502.03373, penalise each token of a repeated n-gram. Departure: one
    value for the completion, over tokens and not words, so that it works in every script.
    """
    return CompletionRewards(
        totals=[-repeated_share(sample.token_ids, n) for sample in completions.samples]
    )


def overlong(completions: Completions, max_new_tokens: int, buffer: int) -> CompletionRewards:
    """DAPO's soft punishment, from 0 to -1 over the last `buffer` tokens before the limit."""
    lengths = torch.tensor([len(sample.token_ids) for sample in completions.samples])
    length_terms = soft_overlong(lengths, max_length=max_new_tokens, buffer=buffer)
    return CompletionRewards(totals=length_terms.tolist())


Script = Literal[
    "latin", "greek", "cyrillic", "armenian", "hebrew", "arabic", "devanagari", "bengali", "tamil",
    "thai", "georgian", "hangul", "hiragana", "katakana", "cjk",
]  # fmt: skip


def language(completions: Completions, scripts: Sequence[Script]) -> CompletionRewards:
    """The share of a completion's letters that are of `scripts`; 1 without letters.

    [latin], or [cjk, hiragana, katakana]; with formulas, greek too. Guo et al., "DeepSeek-R1"
    (2025), section 2.3.2, https://arxiv.org/abs/2501.12948, reward the share of words in the target
    language. Departure: scripts, by the names that Unicode gives letters, so no model guesses a
    language; languages that share a script are one.
    """
    return score_each(completions, lambda _, text: script_share(text, scripts))


def script_share(text: str, scripts: Collection[str]) -> float:
    """Letters of `scripts` over all letters.

    A letter's script is the first word of its Unicode name: `LATIN SMALL LETTER A`. Marks that two
    scripts share are of both (`KATAKANA-HIRAGANA PROLONGED SOUND MARK`); ideographic ones are cjk.
    Look-alikes (`FULLWIDTH LATIN`, `MATHEMATICAL BOLD`) are of no script.
    """
    names = [unicodedata.name(letter, "").lower() for letter in text if letter.isalpha()]
    firsts = [name.partition(" ")[0].replace("ideographic", "cjk") for name in names]
    hits = sum(not set(first.split("-")).isdisjoint(scripts) for first in firsts)
    return hits / len(firsts) if firsts else 1.0
