"""Environments with the interface of the Tinker cookbook's `MessageEnv`.

`initial_observation()` returns messages, `step(message)` an object with `reward`, `episode_done`
and `next_messages`, the whole conversation. The class is in the file `own/<file>.py` that the row
names, and is called with the row and the options.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stages.environments.environment import Message, Reply
from stages.environments.isolated_calls import IsolatedCalls


class Tinker:
    """An environment that holds the conversation: its messages after the assistant's are new."""

    def __init__(self, make: Callable[..., Any], **options: Any) -> None:
        self.make, self.options = make, options

    def start(self, row: Mapping[str, Any], seed: int) -> tuple[Sequence[Message], None]:
        """The first messages."""
        self.call = IsolatedCalls(seed)
        self.environment = self.call(self.make, row, **self.options)
        messages = self.call(self.environment.initial_observation)
        self.history = [copy.deepcopy(dict(message)) for message in messages]
        return [*self.history], None

    def step(self, message: Message) -> Reply:
        """The environment's messages after this one, and the reward.

        A ValueError if it has changed an earlier message.
        """
        before = copy.deepcopy([*self.history, dict(message)])
        result = self.call(self.environment.step, message)
        if result.episode_done:
            return Reply(reward=float(result.reward), done=True)
        messages = [dict(entry) for entry in result.next_messages]
        if messages[: len(before)] != before:
            raise ValueError(
                "expected next_messages to begin with all that was said, and found other messages: "
                "an environment that rewrites its conversation cannot be played"
            )
        self.history = copy.deepcopy(messages)  # the environment may change its messages
        return Reply(messages=messages[len(before) :], reward=float(result.reward))

    def close(self) -> None:
        """Call the `close` of the class, if it has one."""
        if hasattr(self, "environment") and hasattr(self.environment, "close"):
            self.call(self.environment.close)
