"""Interface of an environment: what answers a policy, turn by turn, and rewards it.

    start(row, seed) -> messages, tools    the beginning of an episode
    step(message)    -> Reply              the answer to the assistant's message

An object plays one episode: `start` once, then `step` until `done`. It depends only on (row, seed,
messages), so that an episode can be replayed. Optional methods: `demonstrate` (`scripts`), and
`finish` and `close` (`closing`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol, runtime_checkable

import numpy as np

Message = Mapping[str, Any]
"""Message for a chat template: `role`, `content`, and perhaps `tool_calls` (OpenAI's form, the
arguments an object) or, in a tool's result, `name` and `tool_call_id`."""

Row = Mapping[str, Any]
"""Row of the table of starts, from which an episode begins."""
Start = tuple[Sequence[Message], Sequence[Mapping[str, Any]] | None]
"""First messages, and the JSON schemas of the tools that may be called (None: no tools)."""


MAX_REWARD = (2 - 2**-23) * 2.0**127
"""Largest float32: rewards become advantages in float32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """Answer of an environment to a message of the assistant."""

    messages: Sequence[Message] = ()
    """Messages that the assistant reads next: results of tools, or a user's; none at the end."""
    reward: float = 0.0
    """Reward at the last token of the assistant's turn."""
    done: bool = False


@runtime_checkable
class Environment(Protocol):
    """Environment of one episode."""

    def start(self, row: Row, seed: int) -> Start:
        """First messages, and the JSON schemas of the tools that may be called (None: no tools).

        Args:
            row: with `starts: prompts` the keys id, question, answer and message (the question in
                `data.prompt_template`); else the keys of the environment's rows, at least id.
            seed: seed of all randomness in the episode, the same for all members of a group.
        """
        ...

    def step(self, message: Message) -> Reply:
        """Answer to the assistant's message: role `assistant`, `content`, perhaps `tool_calls`."""
        ...


def write_message(role: str, content: str) -> Message:
    """Message without tool calls."""
    return {"role": role, "content": content}


def check_start(value: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Return value of `start` in the form of a file of episodes; a ValueError if malformed."""
    is_pair = isinstance(value, tuple | list) and len(value) == 2
    if not is_pair or isinstance(value[0], Mapping):  # two messages, not messages and tools
        raise ValueError(
            f"expected two values from start, first messages and tools (None: no tools), found "
            f"{value!r:.80}"
        )
    messages, tools = check_messages(value[0]), value[1]
    if not messages:
        raise ValueError("expected first messages, found none")
    if tools is not None and not (
        isinstance(tools, list | tuple) and all(isinstance(tool, Mapping) for tool in tools)
    ):
        raise ValueError(f"expected a list of JSON schemas as tools, or None, found {tools!r:.80}")
    return messages, _copy_json(tools, "tools") or None


def check_reply(value: Any) -> Reply:
    """Return value of `step` in the form of a file of episodes; a ValueError if malformed."""
    if not isinstance(value, Reply):
        raise ValueError(f"expected a Reply from step, found {value!r:.80}")
    reward = check_reward(value.reward)
    if isinstance(value.done, str):  # 'False' would be true
        raise ValueError(f"expected True or False as done, found {value.done!r:.80}")
    messages = check_messages(value.messages)
    if any(message["role"] == "assistant" for message in messages):
        raise ValueError("expected messages of a tool or user, found one of the assistant")
    if not (messages or value.done):
        raise ValueError("expected messages that the assistant answers, or done, found neither")
    return Reply(messages=messages, reward=reward, done=bool(value.done))


def check_reward(value: Any) -> float:
    """Reward as a float; a ValueError if it is not a finite number in float32."""
    is_number = isinstance(value, Real | np.bool_)
    if not (is_number and abs(float(value)) <= MAX_REWARD):  # false for NaN, too
        raise ValueError(f"expected a finite number as reward, found {value!r:.80}")
    return float(value)


def check_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as JSON values; a ValueError if no chat template can read them."""
    if not isinstance(messages, list | tuple):
        raise ValueError(f"expected a list of messages, found {messages!r:.80}")
    checked = _copy_json(messages, "messages")
    for message in checked:
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)):
            raise ValueError(f"expected messages with a role, found {message!r:.80}")
    return checked


def to_json(value: Any) -> Any:
    """Copy of a value in the form of a file of episodes: tuples become lists."""
    return json.loads(json.dumps(value, allow_nan=False, default=dict))


def _copy_json(value: Any, name: str) -> Any:
    """Copy by `to_json`; a ValueError, which names the value, if JSON cannot have it."""
    try:
        json.dumps(copied := to_json(value), ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"expected {name} of texts, numbers, lists and objects, as JSON in UTF-8 holds them, "
            f"found {value!r:.200}: {type(error).__name__}: {error}"
        ) from error
    return copied
