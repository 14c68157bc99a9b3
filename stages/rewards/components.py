"""Components of a reward: the hyperparameters of each kind, and its value.

A component is called with the completions and the models that the reward may call. Lengths are in
tokens, the end-of-sequence token included.
"""

import re
import unicodedata
from collections.abc import Callable, Collection
from typing import Annotated, Literal

import torch
from pydantic import BeforeValidator, Field

from stages.algorithms.length_and_repetition import repeated_share, soft_overlong
from stages.config import Params, spell_out_kind
from stages.rewards.answer_checker import Forms, has_format, solves_problem, states_one_answer
from stages.rewards.completion_rewards import (
    CompletionRewards,
    Completions,
    RewardModels,
    score_each,
)
from stages.rewards.final_answer import strip_thinking
from stages.rewards.model_components import JudgeWins, Process, model_score

Count = Annotated[int, Field(gt=0)]
FORMS = {"final_line": "hash", "boxed": "boxed", "tags": "tag"}
"""Component -> the form among `answer_forms` that it rewards."""
PLAIN: dict[str, Callable[[Completions, RewardModels], CompletionRewards]] = {
    "answer": lambda drawn, _: score_each(drawn, solves_problem),
    "final_line": lambda drawn, _: score_each(
        drawn, lambda prompt, text: has_format(prompt.whole(text), prompt.answer_forms)
    ),
    "boxed": lambda drawn, _: score_each(
        drawn,
        lambda prompt, text: is_boxed(strip_thinking(prompt.whole(text)), prompt.answer_forms),
    ),
    "scorer": lambda _, models: model_score(models.scorer),
    "own": lambda drawn, models: score_each(drawn, models.need_function()),
}
"""Kinds without hyperparameters: the right answer; working, then one line `#### n`; one readable
answer in a box; the score of the reward model; the user's function."""


class Plain(Params):
    """A component without hyperparameters."""

    kind: Literal["answer", "final_line", "boxed", "scorer", "own"]

    def __call__(self, drawn: Completions, models: RewardModels) -> CompletionRewards:
        """Values by the function of `PLAIN`."""
        return PLAIN[self.kind](drawn, models)


def is_boxed(text: str, forms: Forms = None) -> bool:
    r"""Whether `text` states one readable answer, not a list, in `\boxed{...}`."""
    return text.count("\\boxed") == 1 and "\\boxed{" in text and states_one_answer(text, forms)


TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_WHOLE = re.compile(r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*", re.DOTALL)


class Tags(Params):
    """Format `<think> working </think> <answer> 7 </answer>`.

    `whole`: 1 for the whole format, else 0; `per_tag`: 1 for each of the four tags that occurs
    exactly once, so the weight is the reward per tag. Guo et al., "DeepSeek-R1" (2025), section
    2.2.2, https://arxiv.org/abs/2501.12948, do not say how their format reward is computed; both
    ways are those of reproductions.
    """

    kind: Literal["tags"]
    credit: Literal["whole", "per_tag"]

    def __call__(self, drawn: Completions, _: RewardModels) -> CompletionRewards:
        """Reward for the format, whatever the answer."""
        value = is_tagged if self.credit == "whole" else tags_once
        return score_each(drawn, lambda prompt, text: value(prompt.whole(text)))


def tags_once(text: str) -> int:
    """Number of the four tags that occur exactly once."""
    return sum(text.count(tag) == 1 for tag in TAGS)


def is_tagged(text: str) -> bool:
    """Whether `text` is exactly the two blocks, in order, neither of them blank."""
    blocks = _WHOLE.fullmatch(text) if tags_once(text) == len(TAGS) else None
    return blocks is not None and all(block.strip() for block in blocks.groups())


def measure_tokens(drawn: Completions, measure: Callable[[list[int]], float]) -> CompletionRewards:
    """A measure of the tokens of each completion."""
    return CompletionRewards(totals=[measure(sample.token_ids) for sample in drawn.samples])


class LengthPenalty(Params):
    """Length penalty: - tokens / per."""

    kind: Literal["length_penalty"]
    per: Count

    def __call__(self, drawn: Completions, _: RewardModels) -> CompletionRewards:
        """Minus the length."""
        return measure_tokens(drawn, lambda ids: -len(ids) / self.per)


class LengthTarget(Params):
    """Distance from a target length: - |tokens - target| / target.

    Aggarwal and Welleck, "L1" (2025), eq. 1, https://arxiv.org/abs/2503.04697, with
    alpha = weight / target. Departure: one target for all prompts, which do not name it.
    """

    kind: Literal["length_target"]
    target: Count

    def __call__(self, drawn: Completions, _: RewardModels) -> CompletionRewards:
        """Minus the relative distance from the target."""
        return measure_tokens(drawn, lambda ids: -abs(len(ids) - self.target) / self.target)


class NgramRepetition(Params):
    """Repetition penalty: - (1 - different n-grams / n-grams), from -1 to 0, over tokens.

    Yeo et al., "Demystifying Long Chain-of-Thought Reasoning in LLMs" (2025), appendix,
    https://arxiv.org/abs/2502.03373, penalise each token of a repeated n-gram. Departure: one
    value per completion, over tokens instead of words, so that it works in every script.
    """

    kind: Literal["ngram_repetition"]
    n: Count

    def __call__(self, drawn: Completions, _: RewardModels) -> CompletionRewards:
        """Minus the share of repeated n-grams."""
        return measure_tokens(drawn, lambda ids: -repeated_share(ids, self.n))


class Overlong(Params):
    """DAPO's soft punishment, from 0 to -1 over the last `buffer` tokens before the limit."""

    kind: Literal["overlong"]
    buffer: Count

    def __call__(self, drawn: Completions, models: RewardModels) -> CompletionRewards:
        """Penalty of Yu et al. 2025, eq. 13."""
        lengths = torch.tensor([len(sample.token_ids) for sample in drawn.samples])
        terms = soft_overlong(lengths, max_length=models.max_new_tokens, buffer=self.buffer)
        return CompletionRewards(totals=terms.tolist())


Script = Literal[
    "latin", "greek", "cyrillic", "armenian", "hebrew", "arabic", "devanagari", "bengali", "tamil",
    "thai", "georgian", "hangul", "hiragana", "katakana", "cjk",
]  # fmt: skip


class Language(Params):
    """Share of a completion's letters that belong to `scripts`; 1 without letters.

    Such as [latin], or [cjk, hiragana, katakana]; with formulas, greek too. Guo et al.,
    "DeepSeek-R1" (2025), section 2.3.2, https://arxiv.org/abs/2501.12948, reward the share of words
    in the target language. Departure: scripts, by letters' Unicode names, so no model guesses a
    language; languages with the same script are not told apart.
    """

    kind: Literal["language"]
    scripts: Annotated[list[Script], Field(min_length=1)]

    def __call__(self, drawn: Completions, _: RewardModels) -> CompletionRewards:
        """The share of each completion."""
        return score_each(drawn, lambda _, text: script_share(text, self.scripts))


def script_share(text: str, scripts: Collection[str]) -> float:
    """Letters of `scripts` over all letters.

    A letter's script is the first word of its Unicode name: `LATIN SMALL LETTER A`. Marks that two
    scripts share belong to both (`KATAKANA-HIRAGANA PROLONGED SOUND MARK`), ideographic ones to
    cjk, and look-alikes (`FULLWIDTH LATIN`, `MATHEMATICAL BOLD`) to no script.
    """
    names = [unicodedata.name(letter, "").lower() for letter in text if letter.isalpha()]
    firsts = [name.partition(" ")[0].replace("ideographic", "cjk") for name in names]
    hits = sum(not set(first.split("-")).isdisjoint(scripts) for first in firsts)
    return hits / len(firsts) if firsts else 1.0


Value = Annotated[
    Plain | Tags | LengthPenalty | LengthTarget | NgramRepetition | Overlong | Language | Process
    | JudgeWins,
    Field(discriminator="kind"),
    BeforeValidator(spell_out_kind),
]  # fmt: skip
