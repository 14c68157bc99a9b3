"""Transcripts: turns as text, the demonstrations among them, and the call of each result."""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from stages.records.problems import Problem, ToolCall, Turn

SPEAKERS = {"user": "Human", "assistant": "Assistant"}
"""Role -> the name before its turns."""
TOOL = "Tool"
"""Name before results of tools, which occur in no file of transcripts."""


def render_transcript(turns: Sequence[Turn]) -> str:
    r"""The turns as a transcript that ends where the assistant is to speak.

    A system message stands before the first turn; a later one is a paragraph without a name.
    `[user: Hi]` gives "\n\nHuman: Hi\n\nAssistant:", to which " Hello!" is an answer.
    """
    spoken = [
        f"\n\n{turn.content}"
        if turn.role == "system"
        else f"\n\n{SPEAKERS.get(turn.role, TOOL)}: {show_turn(turn)}"
        for turn in turns
    ]
    if turns and turns[0].role == "system":
        spoken[0] = turns[0].content
    return "".join([*spoken, f"\n\n{SPEAKERS['assistant']}:"])


def show_turn(turn: Turn) -> str:
    """Content of a turn, and each of its calls on a separate line; without reasoning."""
    calls = [f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}'
             for call in turn.calls]  # fmt: skip
    return "\n".join([turn.content, *calls] if turn.content else calls)


def render_question(turns: Sequence[Turn]) -> str:
    """Question for a judge or a reader: a transcript, or a single message without a name."""
    if len(turns) == 1:
        return turns[0].content
    return render_transcript(turns).removesuffix(f"\n\n{SPEAKERS['assistant']}:").strip()


def earlier_turns(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The assistant's turns in prompts of conversations, each as the solution of a problem."""
    for problem in problems:
        turns = problem.turns or ()
        for at, (before, turn) in enumerate(itertools.pairwise(turns), start=1):
            asks = before.role in ("user", "tool")
            if asks and turn.role == "assistant" and turn.is_imitated:
                yield replace(
                    problem, id=f"{problem.id}-turn-{at}", question=render_question(turns[:at]),
                    solution=show_turn(turn), turns=turns[:at],
                    reply=None if turn.is_text else turn,
                )  # fmt: skip


def link_results(turns: Sequence[Turn]) -> list[Turn]:
    """Turns in which each tool result has its call.

    The call is that with the result's id, if both have one, else one with its tool's name, if the
    result has it, else the next in order. A ValueError if no call has a result's id.
    """
    linked, pending = list[Turn](), list[ToolCall]()
    for turn in turns:
        if turn.role == "assistant":
            pending = list(turn.calls)
        if turn.role != "tool":
            linked.append(turn)
            continue
        answered = turn.answers
        call = _find_call(answered, pending)
        if call is not None:
            pending.remove(call)
            label = answered or call
            answered = ToolCall(label.name or call.name, call.arguments, label.id or call.id)
        linked.append(replace(turn, answers=answered))
    return linked


def _find_call(answered: ToolCall | None, pending: Sequence[ToolCall]) -> ToolCall | None:
    """Call of a result among those without one, by what the result names; None: there is none."""
    if answered is not None and answered.id is not None and any(call.id for call in pending):
        same_id = next((call for call in pending if call.id == answered.id), None)
        if same_id is None:
            ids = ", ".join(str(call.id) for call in pending)
            raise ValueError(f"tool result: of call '{answered.id}'; the calls are {ids:.60}")
        return same_id
    if answered is not None and answered.name:
        return next((call for call in pending if call.name == answered.name), None)
    return next(iter(pending), None)
