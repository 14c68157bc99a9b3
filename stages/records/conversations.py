"""Conversations: episodes as text for people, message by message, without tokens."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stages.records.episodes import Ending, Episode

ENDINGS: dict[Ending, str] = {
    "done": "ended by the environment", "turns": "limit of turns", "tokens": "limit of tokens",
    "tool_calls": "limit of tool calls", "parse_error": "unreadable message",
    "environment_error": "environment failed",
}  # fmt: skip
"""Ending -> its description."""
SHOWN = ("role", "content", "tool_calls", "name", "tool_call_id")
"""Keys of a message that are not shown as `key: value`, since they have another place or none."""


class Line(NamedTuple):
    """A message as text."""

    heading: str
    """Heading such as `user`, `tool calculator` or `assistant, turn 2, reward 1`."""
    text: str


def split_exchanges(
    episode: Episode,
) -> Iterator[tuple[Mapping[str, Any] | None, list[Mapping[str, Any]]]]:
    """Each message of the assistant with the answers to it; before these, None with the start."""
    message, answer = None, list(episode.messages[: episode.num_start_messages])
    for later in episode.messages[episode.num_start_messages :]:
        if later["role"] == "assistant":
            yield message, answer
            message, answer = later, []
        else:
            answer.append(later)
    yield message, answer


def list_lines(episode: Episode) -> list[Line]:
    """The messages of an episode, in order."""
    listed: list[Line] = []
    for turn, (message, answer) in enumerate(split_exchanges(episode)):
        if message is not None:
            rewards = [f"reward {reward:g}" for reward in episode.rewards[turn - 1 : turn]]
            heading = ", ".join(["assistant", f"turn {turn}", *rewards])
            listed.append(Line(heading, show_message(message)))
        for reply in answer:
            heading = " ".join([reply["role"], *([reply["name"]] if reply.get("name") else [])])
            listed.append(Line(heading, show_message(reply)))
    return listed


def show_message(message: Mapping[str, Any]) -> str:
    """The thought and the text of a message, then its calls, one per line."""
    values = [f"{key}: {show_value(value)}" for key, value in message.items()
              if key not in SHOWN and value]  # fmt: skip
    calls = [show_call(call) for call in message.get("tool_calls") or ()]
    text = [show_value(message["content"])] if message.get("content") else []
    return "\n".join([*values, *text, *calls])


def show_call(call: Mapping[str, Any]) -> str:
    """Text of a call: `{"name": "calculator", "arguments": {"expression": "3 + 4"}}`."""
    function = call.get("function", call)
    return show_value({"name": function.get("name"), "arguments": function.get("arguments")})


def show_value(value: Any) -> str:
    """Text as it is, another value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def name_tools(episode: Episode) -> list[str]:
    """Names of the tools that could be called."""
    return [str(tool.get("function", tool).get("name")) for tool in episode.tools or ()]


def describe_outcome(episode: Episode) -> str:
    """Outcome such as `reward 1, 2 turns, 1 tool call, ended by the environment`."""
    turns, calls = len(episode.sampled), episode.num_tool_calls
    error = f": {episode.error}" if episode.error else ""
    return (
        f"reward {episode.reward:g}, {turns} turn{'s' * (turns != 1)}, "
        f"{calls} tool call{'s' * (calls != 1)}, {ENDINGS[episode.ending]}{error}"
    )


def render_episode(episode: Episode) -> str:
    """An episode as text: its messages, and the outcome."""
    parts = [f"[{line.heading}]\n{line.text}" for line in list_lines(episode)]
    return "\n\n".join([*parts, f"[{describe_outcome(episode)}]"])
