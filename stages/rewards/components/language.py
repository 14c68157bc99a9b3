"""Is a completion in the script that was asked for?"""

import unicodedata
from collections.abc import Collection
from typing import Literal

from pydantic import Field

from stages.params import Params
from stages.rewards.answered import Answered
from stages.rewards.available import Available
from stages.rewards.each_completion import each
from stages.rewards.judged import Judged

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
