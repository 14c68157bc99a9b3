"""TRL's environment classes (`environment_factory` of its GRPOTrainer).

`reset(**row)` returns text or None, public methods are tools, and `get_reward()` is the reward at
the end, also if a limit ends the episode. All may be coroutines. The class is in the file
`own/<file>.py` that the row names; it receives the options.
"""

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from transformers.utils.chat_template_utils import get_json_schema

from stages.environments.environment import Message, Reply
from stages.environments.isolated_calls import IsolatedCalls
from stages.environments.tool_functions import describe_unknown
from stages.own_modules import describe_error
from stages.records.episodes import ERROR

logger = logging.getLogger(__name__)
_logged = set[tuple[str, type[Exception]]]()
"""Logged pairs of a tool (empty: an unknown one) and the type of its error."""
RESERVED = ("reset", "get_reward")
"""Public methods that are not tools."""


class Trl:
    """Environment of TRL. The episode ends with the first message that calls no tool."""

    def __init__(self, make: Callable[..., Any], **options: Any) -> None:
        self.make, self.options = make, options

    def start(
        self, row: Mapping[str, Any], seed: int
    ) -> tuple[list[Message], list[dict[str, Any]]]:
        """First message: the row's, if it has one, followed by the text of `reset`."""
        self.call = IsolatedCalls(seed)
        self.environment = self.call(self.make, **self.options)
        observation = self.call(self.environment.reset, **row)
        if not isinstance(observation, str | None) or not (observation or row.get("message")):
            raise ValueError(
                f"expected a text from reset, or None if rows have a message (starts: prompts), "
                f"found {observation!r:.80} and a row with {', '.join(row)}"
            )
        text = row.get("message", "") + (observation or "")
        members = inspect.getmembers(type(self.environment), inspect.isfunction)
        names = [name for name, _ in members if name[0] != "_" and name not in RESERVED]
        self.tools = {name: getattr(self.environment, name) for name in names}
        return [{"role": "user", "content": text}], [
            get_json_schema(tool) for tool in self.tools.values()
        ]

    def step(self, message: Message) -> Reply:
        """Results of the tools; as in TRL, a tool's error is its result."""
        calls = message.get("tool_calls")
        if calls:
            return Reply(messages=[self._run(call) for call in calls])
        return Reply(reward=self.finish(), done=True)

    def finish(self) -> float:
        """Reward of the episode."""
        return float(self.call(self.environment.get_reward))

    def _run(self, call: Mapping[str, Any]) -> Message:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        labels = {"tool_call_id": call["id"]} if "id" in call else {}
        try:
            if name not in self.tools:
                raise ValueError(describe_unknown(name, self.tools))
            result = self.call(self.tools[name], **arguments)
        except Exception as error:  # noqa: BLE001 - a wrong call, or the tool's own refusal
            result, labels[ERROR] = {ERROR: str(error)}, describe_error(error)
            kind = name if name in self.tools else "", type(error)
            if kind not in _logged:  # logged once, since a policy may call it thousands of times
                _logged.add(kind)
                logger.warning("a tool failed, and the policy reads why: %s", labels[ERROR])
        return {"role": "tool", "name": name, "content": str(result), **labels}
