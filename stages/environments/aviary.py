"""Environments of aviary: `reset()` returns messages and tools, `step(request)` the next messages.

The class is in the file `own/<file>.py` that the row names, and is called with the row and the
options.
"""

from collections.abc import Callable, Mapping
from typing import Any

from aviary.core import Message as AviaryMessage  # pyright: ignore[reportMissingImports]
from aviary.core import ToolCall, ToolRequestMessage  # pyright: ignore[reportMissingImports]

from stages.environments.environment import Message, Reply
from stages.environments.isolated_calls import IsolatedCalls


class Aviary:
    """An environment of aviary. An episode also ends if aviary truncates it."""

    def __init__(self, make: Callable[..., Any], **options: Any) -> None:
        self.make, self.options = make, options

    def start(
        self, row: Mapping[str, Any], seed: int
    ) -> tuple[list[Message], list[dict[str, Any]]]:
        """The environment's first observations and its tools."""
        self.call, self.num_calls = IsolatedCalls(seed), 0
        self.environment = self.call(self.make, row, **self.options)
        messages, tools = self.call(self.environment.reset)
        return [_to_message(message) for message in messages], [
            tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools
        ]

    def step(self, message: Message) -> Reply:
        """The environment's observations; calls without an id are numbered."""
        calls = list[ToolCall]()
        for call in message.get("tool_calls") or ():
            self.num_calls += 1
            # The class also takes dictionaries.
            function: Any = {key: call["function"][key] for key in ("name", "arguments")}
            calls.append(ToolCall(id=call.get("id") or f"call-{self.num_calls}", function=function))
        content = message.get("content")
        request = (
            ToolRequestMessage(content=content, tool_calls=calls)
            if calls
            else AviaryMessage(role="assistant", content=content)
        )
        messages, reward, done, truncated = self.call(self.environment.step, request)
        ended = done or truncated
        new = [] if ended else [_to_message(observation) for observation in messages]
        return Reply(messages=new, reward=float(reward), done=ended)

    def close(self) -> None:
        """Call the `close` of the class, if it has one."""
        if hasattr(self, "environment") and hasattr(self.environment, "close"):
            self.call(self.environment.close)


def _to_message(message: Any) -> Message:
    keys = ("role", "content", "name", "tool_call_id")
    return {key: getattr(message, key) for key in keys if getattr(message, key, None) is not None}
