"""Messages of AI feedback: to judge two answers, to criticise one, to revise it.

Which of two answers is better: Lee et al. 2023 (RLAIF), https://arxiv.org/abs/2309.00267, section
3.1: a preamble with the task, then question and answers, then an ending after which the next token
is the number of the better answer. Departures: the preamble has one principle of a constitution;
the words are ours; no worked examples, which gained nothing there; the answers are quoted. A judge
may think before it chooses (section 3.2 there): a rationale is decoded greedily, and the options'
probabilities are read after it. Bai et al. 2022, "Constitutional AI", section 4.1,
https://arxiv.org/abs/2212.08073: probabilities after reasoning are over-confident, so clamp them.

Critique request, then revision request, both of one principle: Bai et al. 2022, section 3.1.
Departure: the paper asks both in one growing conversation; here each is a separate message that
quotes the earlier ones, so that any model with one turn can answer it.

Text that a model or a stranger wrote cannot leave its place: every line of it, by any definition of
a line, starts with the same mark (`quote`), so one that imitates the prompt's own lines ("Answer
2:") is still seen as quoted. A tokenizer reads the spelling of a control token as that token: an
answer that spells the end of a turn would end it, and the rest would be another speaker's text. So
such spellings are broken up before tokenization (`defuse`).
"""

import random
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stages.config import read_yaml
from stages.rewards.feedback.principles import CONSTITUTIONS, Principle

Style = Literal["short", "full"]
"""`short` is for the embedded model, which learns it; `full` for instruction-tuned models."""
REASONING_REQUEST = (
    "\nBefore you choose, compare the two step by step in a few sentences. "
    "Do not write your choice yet."
)
"""Ends the message of a judge that reasons."""
REASONING_CUE = "\nSo the better one is number:\n"
"""Continues the judge's own reasoning, up to the option. It ends a line, since after a word the
next token may be only a space: many tokenizers (Qwen, Llama 3) split " 1" into " " and "1"."""

VERDICT_REQUEST = "So which one is better? Answer with the number alone."
"""Next message to a judge that takes only whole turns."""
OPTIONS = ("1", "2")
"""Expected first tokens of the reply; both messages end a line, as the cue does."""
FULL: dict[str, str] = read_yaml(Path(__file__).with_suffix(".yaml"))
"""Messages of the style `full`, with places for `str.format`."""
JUDGE_VERSIONS = {"short": "short-1", "full": "full-2"}
"""Version of the text of a style; it changes whenever the text does."""


def judge_message(
    style: Style, question: str, first: str, second: str, principle: str | None
) -> str:
    """The user's message; the reply is to begin with one of `OPTIONS`.

    `principle`: the criterion, for `short` a principle's `name`, for `full` its `compare`; None:
    whatever is better.
    """
    if style == "short":
        task = "Judge" if principle is None else f"Judge {principle}"
        return f"{task}: {question}\n{quote(first, '1:')}\n{quote(second, '2:')}\nBetter:\n"
    request = principle or "Choose the better one."
    return _full("judge", request, question=question, first=first, second=second)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompts:
    """Requests to a judge about a pair."""

    style: Style
    constitution: Literal["correct", "harmless", "none"]

    def draw_principle(self, seed: int) -> int | None:
        """A principle's number, all equally likely; None without a constitution."""
        if self.constitution == "none":
            return None
        return random.Random(seed).randrange(len(CONSTITUTIONS[self.constitution]))

    def message(self, question: str, first: str, second: str, principle: int | None) -> str:
        """The judge's message about two answers in this order."""
        text = None
        if principle is not None:
            chosen = CONSTITUTIONS[self.constitution][principle]
            text = chosen.name if self.style == "short" else chosen.compare
        return judge_message(self.style, question, first, second, text)

    def both(self, question: str, a: str, b: str, principle: int | None) -> tuple[str, str]:
        """The messages of the orders A, B and B, A."""
        return self.message(question, a, b, principle), self.message(question, b, a, principle)


REVISION_VERSIONS = {"short": "short-1", "full": "full-1"}
"""Version of both texts of a style, the critique's and the revision's."""


def critique_message(style: Style, question: str, answer: str, principle: Principle) -> str:
    """Message that asks what is wrong with `answer`."""
    if style == "short":
        return f"Check {principle.name}: {question}\n{quote(answer, '>')}\nCritique:\n"
    return _full("critique", principle.critique, question=question, answer=answer)


def revision_message(
    style: Style, question: str, answer: str, critique: str, principle: Principle
) -> str:
    """Message that asks for a better answer than `answer`, given its `critique`."""
    if style == "short":
        return (
            f"Revise {principle.name}: {question}\n{quote(answer, '>')}\n{quote(critique, '!')}\n"
            "Answer:\n"
        )
    return _full(
        "revision", principle.revision, question=question, answer=answer, critique=critique
    )


def _full(name: str, request: str, **written: str) -> str:
    """Message of the style `full`, in which texts by others are quoted."""
    quotes = {name: quote(text, ">") for name, text in written.items()}
    return FULL[name].format(request=request, quoted=FULL["quoted"], **quotes)


def quote(text: str, mark: str) -> str:
    """`text` with `mark` and a space before each of its lines; an empty text is one empty line."""
    return "\n".join(f"{mark} {line}".rstrip() for line in text.splitlines() or [""])


# Control tokens of the common chat formats, for an endpoint whose tokenizer is not at hand:
# <|im_end|>, <｜User｜>, <start_of_turn>, [INST], <<SYS>>, <s>, </s>.
CONTROL_TOKENS = re.compile(
    r"<[|｜][^<>\n]{0,40}[|｜]>|</?(?:s|bos|eos|pad|unk|(?:start|end)_of_turn)>|\[/?INST\]|<</?SYS>>",
    re.IGNORECASE,
)


def defuse(text: str, specials: Collection[str] = ()) -> str:
    """`text` without spellings of control tokens; other text is left as it is.

    Puts a space after the first character of each, until none is left: this can never spell
    another, since characters are only moved away from each other. `specials`: texts of the special
    tokens of the tokenizer that will read it.
    """
    # Without spaces around it: a space before one that begins with a space would spell it again.
    tokens = sorted({token.strip() for token in specials if len(token.strip()) > 1}, key=len)
    spelled = [*(re.escape(token) for token in reversed(tokens)), CONTROL_TOKENS.pattern]
    pattern = re.compile("|".join(spelled), re.IGNORECASE)
    while pattern.search(text):
        text = pattern.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
    return text
