"""Interface of an environment: what answers a policy, turn by turn, and rewards it.

    start(row, seed) -> messages, tools    the beginning of an episode
    step(message)    -> Reply              the answer to the assistant's message

An object plays one episode: `start` once, then `step` until `done`. It is a function of (row, seed,
messages) alone, so that an episode can be replayed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

Message = Mapping[str, Any]
"""As chat templates read it: `role`, `content`, and perhaps `tool_calls` (OpenAI's form, the
arguments an object) or, of a tool's result, `name` and `tool_call_id`."""

Row = Mapping[str, Any]
"""What an episode starts from."""
Start = tuple[Sequence[Message], Sequence[Mapping[str, Any]] | None]
"""First messages, and the JSON schemas of the tools that may be called (None: no tools)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """An environment's answer to a message of the assistant."""

    messages: Sequence[Message] = ()
    """What the assistant reads next: results of tools, or a user's message; none at the end."""
    reward: float = 0.0
    """Paid at the last token of the assistant's turn."""
    done: bool = False


@runtime_checkable
class Environment(Protocol):
    """An episode of an environment."""

    def start(self, row: Row, seed: int) -> Start:
        """First messages, and the JSON schemas of the tools that may be called (None: no tools).

        Args:
            row: with `starts: prompts` the keys id, question, answer and message (the question in
                `data.prompt_template`); else what the environment says of its rows, at least id.
            seed: of everything random in the episode, the same for all members of a group.
        """
        ...

    def step(self, message: Message) -> Reply:
        """Answer to the assistant's message: role `assistant`, `content`, perhaps `tool_calls`."""
        ...


def write_message(role: str, content: str) -> Message:
    """A message of text alone."""
    return {"role": role, "content": content}
