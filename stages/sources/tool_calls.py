r"""Tools, their calls and their results in conversations, in the forms in which people keep them.

    [{"type": "function", "function": {"name": "add", "parameters": {..}}}]    tools (OpenAI, TRL)
    [{"name": "add", "parameters": {..}}]        tools (ShareGPT, xLAM; Responses with their `type`)
    {"id": "c0", "function": {"name": "add", "arguments": "{\"a\": 3}"}}          a call (OpenAI)
    {"name": "add", "arguments": {"a": 3}}                                 a call (ShareGPT, xLAM)

A list, each of its elements, and a single call may be JSON text. Malformed ones raise
RejectedError.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stages.records.problems import ToolCall
from stages.sources import columns, raw_rows
from stages.sources.quarantine import RejectedError

Tools = Sequence[Mapping[str, Any]]
"""Tools of a row, as OpenAI and chat templates have them."""


def read_tools(value: Any, what: str) -> Tools:
    """Tools of a list of schemas; an empty list without any."""
    tools = _parse(value, f"tools: '{what}'")
    if columns.is_empty(tools):
        return []
    if not isinstance(tools, list):
        raise RejectedError(f"tools: '{what}' should be a list of schemas and is {value!r:.60}")
    return [_read_tool(_parse_object(tool, f"tools: '{what}'")) for tool in tools]


def _parse_object(value: Any, what: str) -> Any:
    """The object that JSON text describes; other text, such as a tool's name, unchanged."""
    is_json = isinstance(value, str) and value.lstrip().startswith("{")
    return _parse(value, what) if is_json else value


def _read_tool(tool: Any) -> dict[str, Any]:
    is_wrapped = isinstance(tool, dict) and isinstance(tool.get("function"), dict)
    schema = tool["function"] if is_wrapped else tool
    if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
        raise RejectedError(f"tools: expected a schema with a name, found {tool!r:.60}")
    # In a columnar file every tool has the keys of all tools, filled with null.
    filled = {key: value for key, value in (tool if is_wrapped else schema).items()
              if value is not None}  # fmt: skip
    if is_wrapped:
        return filled
    if filled.get("type") == "function":  # beside the name, as in the Responses API
        del filled["type"]
    return {"type": "function", "function": filled}


def read_calls(value: Any, what: str, tools: Tools) -> tuple[ToolCall, ...]:
    """A call, or a list of calls, without the nulls that the schemas of their tools forbid.

    In a columnar file each call has the arguments of all calls, filled with null, and so have rows
    that were saved from it as JSON lines.
    """
    name = f"tool call: '{what}'"
    calls = _parse(value, name)
    calls = calls if isinstance(calls, list) else [calls]
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
    return tuple(_read_call(_parse_object(call, name), schemas) for call in calls)


CALL_KEYS = frozenset({"id", "type", "index", "function", "name", "arguments"})
"""Keys of a call: those that are read, and its index."""


def _read_call(call: Any, schemas: Mapping[str, Any]) -> ToolCall:
    has_function = isinstance(call, dict) and isinstance(call.get("function"), dict)
    content = call["function"] if has_function else call
    name = content.get("name") if isinstance(content, dict) else None
    if not isinstance(name, str) or not name.strip():
        raise RejectedError(f"tool call: expected a name and arguments, found {call!r:.60}")
    unread = [key for part in (call, content) for key, value in part.items()
              if key not in CALL_KEYS and not columns.is_empty(value)]  # fmt: skip
    if unread:
        raise RejectedError(
            f"tool call: '{unread[0]}' of '{name}' is not read, found {call!r:.60}: write what it "
            f"is called with as `arguments`, and its result as a message of the role tool"
        )
    arguments = _parse(content.get("arguments"), "tool call: 'arguments'") or {}
    if not isinstance(arguments, dict):
        expected = f"the arguments of '{name}' should be an object"
        raise RejectedError(f"tool call: {expected} and are {arguments!r:.60}")
    number = call.get("id")
    schema = schemas.get(name)
    if isinstance(schema, dict) and isinstance(listed := schema.get("properties"), dict):
        arguments = {key: value for key, value in arguments.items() if value is not None
                     or (_may_be_null(listed[key]) if listed.get(key) is not None
                         else schema.get("additionalProperties"))}  # fmt: skip
    return ToolCall(name, to_json(arguments), None if number is None else str(number))


_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})
"""Types of JSON schemas other than null."""


def _may_be_null(schema: Any) -> bool:
    """Whether the schema of an argument does not forbid null."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    return not isinstance(kind, str) or kind not in _TYPES or bool(schema.get("nullable"))


def _parse(value: Any, what: str) -> Any:
    """The value, parsed if it is JSON text."""
    if not isinstance(value, str) or not value.strip():
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise RejectedError(f"{what} should be JSON ({error}) and is {value!r:.60}") from None


def to_json(value: Any) -> str:
    """JSON text as chat templates write it; RejectedError for half a surrogate pair."""
    return raw_rows.check_text(json.dumps(value, ensure_ascii=False), "tools")
