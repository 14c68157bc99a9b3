r"""Conversations: lists of messages, or transcripts, and the turns that they hold.

    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
    [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]
    "[{\"role\": ..."                                                             JSON text of these
    "\n\nHuman: Hi\n\nAssistant: Hello!"                      transcripts (HH-RLHF), with one or two
    "Human: Hi\nAssistant: Hello!"                                    newlines between their turns
    [{"role": "prompter", "text": "Hi"}]                                     messages of OASST
    "Hi"                                                                          a user's message

    ["Hi", "Hello!"]                                              texts, the user's first (LIMA)
    [{"input": "Hi", "output": "Hello!"}]                                  exchanges (Capybara)
    [{"type": "function_call", "call_id": "c0", "name": ..}]              items of the Responses API

Contents may be lists of parts of text. `developer` is the system; an empty system message is
dropped. A turn with `weight: 0` (`train: false`, `loss: false`) is context: not imitated. Calls of
tools and their results (`tool_calls`), and reasoning, are parts of turns. Keys of provenance
(`PROVENANCE`) are skipped. Any other key, such as an image, a rating or a channel, rejects the row,
unless it is null or listed in `ignore`.
"""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from stages.config import read_yaml
from stages.records.problems import REASONING_KEYS, ToolCall, Turn
from stages.records.transcripts import SPEAKERS, link_results
from stages.sources import columns, raw_rows, tool_calls
from stages.sources.quarantine import RejectedError
from stages.sources.tool_calls import Tools

ROLES_OF_SPEAKERS = {name: role for role, name in SPEAKERS.items()}
FORMS: Mapping[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))
"""Names of roles and keys, and the marks of chat templates."""
ROLES = {name: role for role, names in FORMS["roles"].items() for name in names}
"""Name of a role, in lower case -> the role."""
CALL_ROLES = ("function_call", "tool_call")
"""Roles of messages that are calls of tools, as JSON text: parts of the assistant's turn."""
CALL_KEYS = ("tool_calls", "function_call")
READ_KEYS = frozenset({
    "role", "from", "content", "value", "tool_call_id", "name", *CALL_KEYS, *REASONING_KEYS,
    *FORMS["weights"],
})  # fmt: skip
PROVENANCE = frozenset(FORMS["provenance"])
PART_KEYS = frozenset({"type", "text", "cache_control"})
_NUMBERS = ("type", "id", "call_id", "status")
"""Keys of a call item of the Responses API that are not part of the call."""
_TURN = re.compile(rf"\n\n({'|'.join(ROLES_OF_SPEAKERS)}):")
_PRINTED = re.compile(
    r"(?=\s*\[\s*\{\s*'(?:role|from|content|value)')"
    rf".*'(?:role|from)': '(?:{'|'.join(ROLES)})'",
    re.DOTALL,
)
"""Messages as Python prints them; other lists of objects may begin a reply with Python code."""
_RENDERED = re.compile(rf"\s*(?:<s>\s*)?(?:{FORMS['first']})")
"""Beginning of a message that a chat template has rendered."""
_RENDERED_TEXT = re.compile(
    "|".join(
        [
            rf"(?s:\A\s*(?:{FORMS['first']}|{FORMS['printed']}))",
            f"(?im:{FORMS['turn'].replace('{role}', FORMS['role'])})",
            *FORMS["inline"],
        ]
    )
)
"""Marks of a chat template or a printed conversation, at the beginning of a text or a line."""
_END_OF_TURN = re.compile(rf"(?:(?:{FORMS['end']})\s*)+$")
_LINE_TURN = re.compile(rf"(?:^\s*|\n+)({'|'.join(ROLES_OF_SPEAKERS)}):")


def read_conversation(
    value: Any, what: str, ignore: Collection[str] = (), *, may_end_empty: bool = False,
    may_alternate: bool = True, tools: Tools = (),
) -> list[Turn]:  # fmt: skip
    """The turns of a list of messages, of JSON text, of a transcript or of a user's message.

    Args:
        value: Content of the column.
        what: Name of the column, for the message of a RejectedError.
        ignore: Keys of messages that may be dropped.
        may_end_empty: Accept an empty last turn, which the caller reports itself.
        may_alternate: Read several texts as the user's and the assistant's in turn; otherwise all
            may be the user's, and they are rejected.
        tools: Tools of the row, whose schemas may forbid nulls in their calls.
    """
    value = columns.unwrap(value)
    if isinstance(value, str):
        text = raw_rows.check_text(value, what)
        value = columns.parse_nested(text)
        if isinstance(value, str) or not columns.is_conversation(value):
            return read_text(text, what, may_end_empty=may_end_empty)
    if isinstance(value, dict) and ("role" in value or "from" in value):
        value = [value]
    if not isinstance(value, list) or not value:
        raise RejectedError(f"no conversation: '{what}' should be a filled list, is {value!r:.60}")
    turns, is_response = list[Turn](), any(map(_is_item, value))
    for entry in map(_read_item, _spell_out(value, what, may_alternate=may_alternate)):
        turn = read_message(entry, ignore, tools)
        is_part = is_response or _role_in(entry) in CALL_ROLES
        if turn is not None and is_part and turns and is_reply(turn) and is_reply(turns[-1]):
            turns += _join_parts(turns.pop(), turn)
        elif turn is not None:
            turns.append(turn)
    if any(is_silent(turn) for turn in turns[: -1 if may_end_empty else None]):
        raise RejectedError("empty turn: one of the turns says nothing")
    if not turns:
        raise RejectedError(f"no conversation: '{what}' holds an empty system message alone")
    try:
        return link_results(turns)
    except ValueError as error:
        raise RejectedError(str(error)) from error


def is_reply(turn: Turn) -> bool:
    """Whether the turn is the assistant's."""
    return turn.role == "assistant"


def is_silent(turn: Turn) -> bool:
    """Whether the turn is empty; the result of a tool may be."""
    return not turn.content and not turn.calls and turn.role != "tool"


def _spell_out(entries: list[Any], what: str, *, may_alternate: bool) -> list[Any]:
    """Messages from texts (user and assistant in turn) or from exchanges; others unchanged."""
    if len(entries) > 1 and all(isinstance(entry, str) for entry in entries):
        if not may_alternate:
            raise RejectedError(
                f"several texts: '{what}' should be one, or messages with roles, is {entries!r:.60}"
                f": name one, as {what}.0, or write each as a message with its role"
            )
        roles = itertools.cycle(("user", "assistant"))
        return [{"role": role, "content": text} for role, text in zip(roles, entries, strict=False)]
    if all(isinstance(entry, dict) and entry.keys() == {"input", "output"} for entry in entries):
        sides = (("user", "input"), ("assistant", "output"))
        return [{"role": role, "content": entry[key]} for entry in entries for role, key in sides]
    return entries


def _join_parts(turn: Turn, more: Turn) -> list[Turn]:
    """The assistant's turn of which these are parts; both, if each has a text or a reasoning."""
    if (turn.content and more.content) or (turn.reasoning and more.reasoning):
        return [turn, more]
    return [replace(
        turn, content=turn.content or more.content, reasoning=turn.reasoning or more.reasoning,
        calls=turn.calls + more.calls, is_imitated=turn.is_imitated and more.is_imitated,
    )]  # fmt: skip


def _read_item(entry: Any) -> Any:
    """The message of an item of the Responses API that names no role; other entries as they are."""
    if not _is_item(entry):
        return entry
    if entry["type"] == "function_call_output":
        result = {"tool_call_id": entry.get("call_id"), "content": entry.get("output")}
        return {"role": "tool"} | result
    if entry["type"] == "function_call":
        call = {key: value for key, value in entry.items() if key not in _NUMBERS}
        call["id"] = entry.get("call_id", entry.get("id"))
        return {"role": "assistant", "tool_calls": [call]}
    parts = entry.get("content") or entry.get("summary") or ""
    text = _read_content({"text": parts}, "text", ())
    return {"role": "assistant", "content": "", REASONING_KEYS[0]: text}


def _is_item(entry: Any) -> bool:
    """Whether it is an item of a response that names no role: a call, its result, reasoning."""
    return isinstance(entry, dict) and (
        entry.get("type") in columns.RESPONSE_ITEMS and entry.keys().isdisjoint(("role", "from"))
    )


def read_text(text: str, what: str, *, may_end_empty: bool) -> list[Turn]:
    """The turns of a transcript or of one user's message; RejectedError for other renderings."""
    if not text.strip():
        raise RejectedError(f"empty question: '{what}' holds no text")
    begin = _TURN if _TURN.match(text) else _LINE_TURN
    if begin is _TURN or columns.is_conversation(text):
        turns = parse_transcript(text, begin)
        # A last `Assistant:` asks for the reply.
        is_open = len(turns) > 1 and is_reply(turns[-1]) and not turns[-1].content
        if not all(turn.content for turn in (turns[:-1] if is_open else turns)):
            raise RejectedError("empty turn: one of the turns says nothing")
        return turns[:-1] if is_open and not may_end_empty else turns
    _check_printed(text)
    if rendered := _RENDERED_TEXT.search(text):
        _refuse_rendered(text[rendered.start(rendered.lastindex or 0) :])
    return [Turn("user", text.strip())]


def _refuse_rendered(text: str) -> NoReturn:
    raise RejectedError(
        f"a rendered conversation: expected messages, found {text[:30]!r}: write each turn as a "
        f"message with role and content"
    )


def _check_printed(text: str) -> None:
    """Raise RejectedError for messages as pandas writes them into a CSV file."""
    if _PRINTED.match(text):
        raise RejectedError(
            "messages as Python prints them: save the file as parquet or JSON lines"
        )


def check_reply(reply: str) -> None:
    """Raise RejectedError for a reply that is printed messages, or ends with a template's mark."""
    _check_printed(reply)
    match = _END_OF_TURN.search(reply)
    if match is None or (match[0].strip() == "</s>" and "<s>" in reply):  # struck out in HTML
        return
    raise RejectedError(
        f"a rendered reply: expected its text alone, found {match[0]!r} at its end: delete this "
        f"mark, which the chat template of the model adds"
    )


def read_message(message: Any, ignore: Collection[str], tools: Tools) -> Turn | None:
    """The turn of a message of either shape, its text stripped; None: an empty system message."""
    entry = message if isinstance(message, dict) else {}
    content = _content_key(entry)
    spoken_by = _role_in(entry)
    if spoken_by not in ROLES:
        expected = f"a role of {', '.join(ROLES)} and a content"
        raise RejectedError(f"no message: expected {expected}, found {message!r:.60}")
    _check_keys(entry, content, ignore)
    role = ROLES[spoken_by]
    if spoken_by in CALL_ROLES:
        calls = tool_calls.read_calls(entry.get(content), content, tools)
        return Turn(role, "", is_imitated=_read_weight(entry), calls=calls)
    calls, reasoning = _read_calls(entry, ignore, tools), _read_reasoning(entry, ignore)
    if role != "assistant" and (calls or reasoning):
        raise RejectedError(f"no message: a turn of the role {spoken_by!r} calls tools or reasons")
    if role == "tool" or calls:
        entry = entry | {content: _to_text(entry.get(content))}
    if role == "system" and columns.is_empty(entry.get(content)):
        return None
    text = _read_content(entry, content, ignore)
    if role == "system" and not text:
        return None
    if role == "assistant":
        check_reply(text)
    if role == "user" and _RENDERED.match(text):
        _refuse_rendered(text)
    return Turn(
        role, text, is_imitated=_read_weight(entry), calls=calls, reasoning=reasoning,
        answers=_read_answered(entry) if role == "tool" else None,
    )  # fmt: skip


def _role_in(entry: Any) -> str:
    """The message's name for its role, in lower case."""
    fields = entry if isinstance(entry, dict) else {}
    return str(fields.get("from" if fields.get("from") is not None else "role")).lower()


def _content_key(entry: Mapping[str, Any]) -> str:
    """Key of a message's text: `content` or `value`, whichever is filled.

    OASST has neither, but `text`.
    """
    keys = [key for key in ("content", "value") if key in entry]
    filled = [key for key in keys if not columns.is_empty(entry[key])]
    return next(iter(filled or keys), "text" if "text" in entry else "content")


def _check_keys(entry: Mapping[str, Any], content: str, ignore: Collection[str]) -> None:
    """Raise RejectedError for a key that is neither read nor one of provenance."""
    roles = [ROLES.get(str(entry.get(key)).lower()) for key in ("from", "role")]
    if None not in roles and len(set(roles)) > 1:
        raise RejectedError(f"contradiction: 'from' says {roles[0]} and 'role' says {roles[1]}")
    for key, value in entry.items():
        is_read = key in PROVENANCE or (key in READ_KEYS and key not in ("content", "value"))
        is_repeated = columns.is_empty(value) or value == entry.get(content)
        if not (is_read or is_repeated or key in ignore or value in FORMS["ordinary"].get(key, ())):
            _refuse_key("a message", key, value)


def _refuse_key(what: str, key: str, value: Any) -> NoReturn:
    raise RejectedError(
        f"unread key: {what} has '{key}' ({value!r:.60}), which is not read; where it may be "
        f"dropped, name it: ignore: [{key}]"
    )


def _read_calls(
    entry: Mapping[str, Any], ignore: Collection[str], tools: Tools
) -> tuple[ToolCall, ...]:
    """The calls beside a message's content."""
    keys = [key for key in CALL_KEYS if key not in ignore and not columns.is_empty(entry.get(key))]
    return tuple(call for key in keys for call in tool_calls.read_calls(entry[key], key, tools))


def _read_answered(entry: Mapping[str, Any]) -> ToolCall | None:
    """The call that a tool's result answers: its id, and the tool's name."""
    number, name = (entry.get(key) for key in ("tool_call_id", "name"))
    if number is None and not isinstance(name, str):
        return None
    return ToolCall(str(name or ""), "{}", None if number is None else str(number))


def _read_reasoning(entry: Mapping[str, Any], ignore: Collection[str]) -> str:
    """The reasoning beside a message's content, stripped; a RejectedError for two that differ."""
    texts = {
        key: raw_rows.check_text(entry[key], key).strip()
        for key in REASONING_KEYS
        if key not in ignore and not columns.is_empty(entry.get(key))
    }
    if len(set(texts.values())) > 1:
        raise RejectedError(f"contradiction: {' and '.join(texts)} differ; `ignore` all but one")
    return next(iter(texts.values()), "")


def _to_text(value: Any) -> Any:
    """Content beside calls, or a tool's result, as text: None is empty, an object its JSON text."""
    is_text = isinstance(value, list) and all(
        isinstance(part, dict) and part.get("type") in FORMS["texts"] for part in value
    )
    if value is None or (isinstance(value, str) and not value.strip()):
        return ""
    return value if isinstance(value, str) or is_text else tool_calls.to_json(value)


def _read_content(entry: Mapping[str, Any], key: str, ignore: Collection[str]) -> str:
    """The text of a message, its parts joined, stripped."""
    value = entry.get(key)
    if isinstance(value, list):
        for part in value:
            if not isinstance(part, dict) or part.get("type", "text") not in FORMS["texts"]:
                raise RejectedError(f"no text: a part of a message is {part!r:.60}")
            unread = [name for name in part if not columns.is_empty(part[name])
                      and name not in PART_KEYS and name not in ignore]  # fmt: skip
            if unread:
                _refuse_key("a part of a message", unread[0], part[unread[0]])
        value = "".join(raw_rows.check_text(part.get("text"), "text") for part in value)
        entry = {**entry, key: value}
    return "" if entry.get(key) == "" else raw_rows.read_verbatim(entry, key).strip()


def _read_weight(entry: Mapping[str, Any]) -> bool:
    """Whether the turn is imitated; RejectedError for a weight between 0 and 1."""
    values = [entry[key] for key in FORMS["weights"] if entry.get(key) is not None]
    for value in values:
        if columns.read_flag(value) is None:
            raise RejectedError(f"weight: expected 0 or 1, true or false, found {value!r:.60}")
    return all(map(columns.read_flag, values))


def add_system(turns: Sequence[Turn], system: str | None) -> list[Turn]:
    """The turns with a system message first; RejectedError if they begin with a different one."""
    if system is None or not system.strip():
        return list(turns)
    if turns[0].role == "system" and turns[0].content != system.strip():
        raise RejectedError("two systems: the messages begin with another system message")
    return [Turn("system", system.strip()), *turns[turns[0].role == "system" :]]


def join(before: list[Turn], turns: list[Turn], name: str) -> list[Turn]:
    """The prompt's turns, then those of the answer in column `name`, which may repeat the prompt.

    Either may have a system message. RejectedError if the two prompts differ.
    """
    if turns[: len(before)] == before:
        return turns
    systems = [turn for turn in turns if turn.role == "system"]
    prompt, answer = ([turn for turn in side if turn.role != "system"] for side in (before, turns))
    if prompt and answer[: len(prompt)] == prompt:
        if systems and prompt != before:
            raise RejectedError(f"two systems: '{name}' has another system message")
        return turns if systems else [*before[: len(before) - len(prompt)], *answer]
    if before and turns[0].role not in ("assistant", "tool"):
        raise RejectedError(
            f"contradiction: '{name}' begins with another prompt, {turns[0].content!r:.40}; of a "
            f"list of answers name one, as {name}.0"
        )
    return [*before, *turns]


def parse_transcript(text: str, turn: re.Pattern[str] = _TURN) -> list[Turn]:
    """The turns of a transcript, which begins with one; their texts stripped."""
    _, *parts = turn.split(text)
    return [
        Turn(ROLES_OF_SPEAKERS[name], content.strip())
        for name, content in zip(parts[::2], parts[1::2], strict=True)
    ]


def parse_question(question: str) -> list[Turn]:
    """The turns that `render_question` shows."""
    before, *_ = _TURN.split(f"\n\n{question}")
    transcript = f"\n\n{question}".removeprefix(before)
    if not transcript:
        return [Turn("user", before.strip())]
    system = [Turn("system", before.strip())] if before.strip() else []
    turns = [*system, *parse_transcript(transcript)]
    # A message that only quotes an assistant's turn is not a transcript.
    return turns if any(turn.role == "user" for turn in turns) else [Turn("user", question.strip())]
