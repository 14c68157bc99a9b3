r"""Conversations: lists of messages, or transcripts, and the turns that they hold.

    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
    [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]
    "[{\"role\": ..."                                                             JSON text of these
    "\n\nHuman: Hi\n\nAssistant: Hello!"                      transcripts (HH-RLHF), with one or two
    "Human: Hi\nAssistant: Hello!"                                    newlines between their turns
    "Hi"                                                                          a user's message

    ["Hi", "Hello!"]                                              texts, the user's first (LIMA)
    [{"input": "Hi", "output": "Hello!"}]                                  exchanges (Capybara)

Contents may be lists of parts of type text. `developer` is the system; an empty system message is
none. A turn with `weight: 0` (`train: false`, `loss: false`) is context: not imitated. A key that
says more than role and content, such as `tool_calls`, `reasoning_content` or an image, makes the
row a bad one, unless it is ignored.
"""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from stages.records.problems import Turn
from stages.records.transcripts import SPEAKERS
from stages.sources import columns, raw_rows
from stages.sources.quarantine import RejectedError

ROLES_OF_SPEAKERS = {name: role for role, name in SPEAKERS.items()}
ROLES = {
    "system": "system", "developer": "system",
    "user": "user", "human": "user", "prompter": "user",
    "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant",
    "model": "assistant",
}  # fmt: skip
"""Name of a role, in lower case -> the role."""
TOOL_ROLES = ("tool", "function", "function_call", "tool_call", "observation", "tool_response")
WEIGHTS = ("weight", "train", "training", "loss")
"""Keys of a message that say whether it is imitated."""
REFUSED_KEYS = frozenset({
    "tool_calls", "function_call", "tool_call_id", "reasoning_content", "reasoning", "thinking",
    "images", "image", "audio", "audios", "videos", "video", "refusal", "loss_scale", "mask",
    "train_detail", "training_detail", "attachments", "experimental_attachments", "context",
    "files", "documents",
})  # fmt: skip
_TURN = re.compile(rf"\n\n({'|'.join(ROLES_OF_SPEAKERS)}):")
_PRINTED = re.compile(r"\s*\[\s*\{\s*'(?:role|from|content|value)'")
_OTHER_TEMPLATE = re.compile(
    r"\s*(?:<\|im_start\|>|<\|user\|>|<start_of_turn>|<\|start_header_id\|>|(?:<s>)?\s*\[INST\]"
    r"|\[\|Human\|\]|### Human:|(?i:User):.*(?i:Assistant):)",
    re.DOTALL,
)
_LINE_TURN = re.compile(rf"(?:^|\n+)({'|'.join(ROLES_OF_SPEAKERS)}):")


def read_conversation(
    value: Any, what: str, ignore: Collection[str] = (), *, may_end_empty: bool = False
) -> list[Turn]:
    """The turns of a list of messages, of JSON text, of a transcript or of a user's message.

    Args:
        value: What the row has.
        what: Column, for the message of a RejectedError.
        ignore: Keys of messages that may be dropped.
        may_end_empty: The last turn is an answer, of which the caller says more if it is empty.
    """
    value = columns.unwrap(value)
    if isinstance(value, str):
        text = raw_rows.check_text(value, what)
        if not (text.lstrip().startswith("[") and columns.is_conversation(text)):
            return read_text(text, what, may_end_empty=may_end_empty)
        value = columns.parse_json(text)
    if isinstance(value, dict) and ("role" in value or "from" in value):
        value = [value]
    if not isinstance(value, list) or not value:
        raise RejectedError(f"no conversation: '{what}' should be a filled list, is {value!r:.60}")
    value = _spell_out(value)
    turns = [turn for entry in value if (turn := read_message(entry, ignore)) is not None]
    if not all(turn.content for turn in turns[: -1 if may_end_empty else None]):
        raise RejectedError("empty turn: one of the turns says nothing")
    if not turns:
        raise RejectedError(f"no conversation: '{what}' holds an empty system message alone")
    return turns


def _spell_out(entries: list[Any]) -> list[Any]:
    """Messages; of texts the user's and the assistant's in turn, of exchanges both sides."""
    if len(entries) > 1 and all(isinstance(entry, str) for entry in entries):
        roles = itertools.cycle(("user", "assistant"))
        return [{"role": role, "content": text} for role, text in zip(roles, entries, strict=False)]
    if all(isinstance(entry, dict) and entry.keys() == {"input", "output"} for entry in entries):
        sides = (("user", "input"), ("assistant", "output"))
        return [{"role": role, "content": entry[key]} for entry in entries for role, key in sides]
    return entries


def read_text(text: str, what: str, *, may_end_empty: bool) -> list[Turn]:
    """The turns of a transcript, or a user's message alone; RejectedError for other renderings."""
    if not text.strip():
        raise RejectedError(f"empty question: '{what}' holds no text")
    if _TURN.match(text):
        return _check_end(parse_transcript(text), may_end_empty=may_end_empty)
    if columns.is_conversation(text):
        turns = parse_transcript(text.lstrip(), _LINE_TURN)
        return _check_end(turns, may_end_empty=may_end_empty)
    if _PRINTED.match(text):
        raise RejectedError(
            "messages as Python prints them: save the file as parquet or JSON lines"
        )
    if _OTHER_TEMPLATE.match(text):
        raise RejectedError(
            f"a rendered conversation: expected messages, found {text[:30]!r}: write each turn as "
            f"a message with role and content"
        )
    return [Turn("user", text.strip())]


def read_message(message: Any, ignore: Collection[str]) -> Turn | None:
    """The turn of a message of either shape, its text stripped; None: an empty system message."""
    entry = message if isinstance(message, dict) else {}
    name = "from" if "from" in entry else "role"
    content = "value" if "value" in entry and "content" not in entry else "content"
    spoken_by = str(entry.get(name)).lower()
    if spoken_by in TOOL_ROLES:
        raise RejectedError(f"tools: a turn has the role {spoken_by!r}, which nothing here reads")
    if spoken_by not in ROLES:
        expected = f"a role of {', '.join(ROLES)} and a content"
        raise RejectedError(f"no message: expected {expected}, found {message!r:.60}")
    for key in entry:
        if key in REFUSED_KEYS and key not in ignore and not columns.is_empty(entry[key]):
            raise RejectedError(
                f"unread key: a message has '{key}', which is not read; where it may be dropped, "
                f"name it under `ignore`"
            )
    text = _read_content(entry, content)
    role = ROLES[spoken_by]
    if role == "system" and not text:
        return None
    return Turn(role, text, is_imitated=_read_weight(entry))


def _read_content(entry: Mapping[str, Any], key: str) -> str:
    """The text of a message, its parts joined, stripped."""
    value = entry.get(key)
    if isinstance(value, list):
        for part in value:
            if not isinstance(part, dict) or part.get("type", "text") != "text":
                raise RejectedError(f"no text: a part of a message is {part!r:.60}")
        value = "".join(raw_rows.check_text(part.get("text"), "text") for part in value)
        entry = {**entry, key: value}
    return "" if entry.get(key) == "" else raw_rows.read_verbatim(entry, key).strip()


def _read_weight(entry: Mapping[str, Any]) -> bool:
    """Whether the turn is imitated; RejectedError for a weight between."""
    values = [entry[key] for key in WEIGHTS if entry.get(key) is not None]
    if any(value not in (0, 1, "true", "false", "True", "False") for value in values):
        raise RejectedError(f"weight: expected 0 or 1, true or false, found {values[0]!r:.60}")
    return all(str(value).lower() not in ("0", "0.0", "false") for value in values)


def _check_end(turns: list[Turn], *, may_end_empty: bool) -> list[Turn]:
    """The turns of a transcript; one that ends with `Assistant:` asks for the reply."""
    is_open = len(turns) > 1 and turns[-1].role == "assistant" and not turns[-1].content
    if not all(turn.content for turn in (turns[:-1] if is_open else turns)):
        raise RejectedError("empty turn: one of the turns says nothing")
    return turns[:-1] if is_open and not may_end_empty else turns


def add_system(turns: Sequence[Turn], system: str | None) -> list[Turn]:
    """The turns after a system message; RejectedError where they begin with another one."""
    if system is None or not system.strip():
        return list(turns)
    if turns[0].role == "system" and turns[0].content != system.strip():
        raise RejectedError("two systems: the messages begin with another system message")
    return [Turn("system", system.strip()), *turns[turns[0].role == "system" :]]


def parse_transcript(text: str, turn: re.Pattern[str] = _TURN) -> list[Turn]:
    """The turns of a transcript, their texts stripped."""
    before, *parts = turn.split(text)
    if before.strip() or not parts:
        raise RejectedError(f"no transcript: expected a turn at the beginning, found {text!r:.60}")
    return [
        Turn(ROLES_OF_SPEAKERS[name], content.strip())
        for name, content in zip(parts[::2], parts[1::2], strict=True)
    ]


def parse_question(question: str) -> list[Turn]:
    """The turns that `render_question` shows."""
    before, *_ = _TURN.split(f"\n\n{question}")
    rest = f"\n\n{question}".removeprefix(before)
    if not rest:
        return [Turn("user", before.strip())]
    system = [Turn("system", before.strip())] if before.strip() else []
    turns = [*system, *parse_transcript(rest)]
    # A message that quotes an assistant's turn is no transcript.
    return turns if any(turn.role == "user" for turn in turns) else [Turn("user", question.strip())]
