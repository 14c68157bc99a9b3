"""Transcripts: the turns of a conversation as text, and the demonstrations among them."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from stages.records.problems import Problem, Turn

SPEAKERS = {"user": "Human", "assistant": "Assistant"}
"""Role -> the name before its turns."""


def render_transcript(turns: Sequence[Turn]) -> str:
    r"""The turns as a transcript that ends where the assistant is to speak.

    A system message stands before the first turn. `[user: Hi]` gives
    "\n\nHuman: Hi\n\nAssistant:", to which " Hello!" is an answer.
    """
    spoken = [
        turn.content if turn.role == "system" else f"\n\n{SPEAKERS[turn.role]}: {turn.content}"
        for turn in turns
    ]
    return "".join([*spoken, f"\n\n{SPEAKERS['assistant']}:"])


def render_question(turns: Sequence[Turn]) -> str:
    """What is asked, as a judge and a reader are shown it: a transcript, or one message alone."""
    if len(turns) == 1:
        return turns[0].content
    return render_transcript(turns).removesuffix(f"\n\n{SPEAKERS['assistant']}:").strip()


def earlier_turns(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The assistant's turns in the prompts of conversations, each as the solution of its own."""
    for problem in problems:
        turns = problem.turns or ()
        for at, (before, turn) in enumerate(itertools.pairwise(turns), start=1):
            if (before.role, turn.role) == ("user", "assistant") and turn.is_imitated:
                yield replace(
                    problem, id=f"{problem.id}-turn-{at}", question=render_question(turns[:at]),
                    solution=turn.content, turns=turns[:at],
                )  # fmt: skip
