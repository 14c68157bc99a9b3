"""Tools of an environment: Python functions that the assistant calls by name, in two lines.

    tools = Tools(calculate)              # tools.schemas is what `start` returns as tools
    results = tools.answer(message)       # messages with the results of the calls; none without any

A tool's schema follows from its type hints and its docstring, which has a section `Args:`. A call
that does not fit, or a ValueError of the tool, is answered with a text that tells the model so.
Such a result has a key `error`, which the metric `tool_errors` counts.
Any other error of a tool is a failure of the environment. Only the tool's code runs: the model
writes only its arguments, JSON values of the hinted types.
"""

import inspect
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from transformers.utils.chat_template_utils import get_json_schema

from stages.environments.environment import Message
from stages.records.episodes import ERROR


class Tools:
    """Functions that the assistant may call by name."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        """Raise a ValueError if no call can fit a function.

        transformers refuses a function without a type hint and a description of each argument.
        """
        self.schemas = [get_json_schema(function) for function in functions] or None
        """JSON schemas in OpenAI's form; None without functions."""
        self._tools = {function.__name__: _Tool(function) for function in functions}

    def answer(self, message: Message) -> list[dict[str, Any]]:
        """Results of the calls of an assistant's message, in their order."""
        return [self._answer(call) for call in message.get("tool_calls") or ()]

    def _answer(self, call: Mapping[str, Any]) -> dict[str, Any]:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        labels = {"tool_call_id": call["id"]} if call.get("id") is not None else {}
        try:
            if name not in self._tools:
                raise ValueError(describe_unknown(name, self._tools))
            result = self._tools[name].call(arguments)
        except ValueError as error:
            result = f"error: {error}"
            labels[ERROR] = str(error)
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        return {"role": "tool", "name": name, **labels, "content": text}


class _Tool:
    """Function with the types of its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        hints, parameters = get_type_hints(function), inspect.signature(function).parameters
        problems = [f"{each}: name each argument" for each in parameters.values()
                    if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]  # fmt: skip
        if inspect.iscoroutinefunction(function):
            problems.append("`async def`: call `asyncio.run(..)` in a `def`")
        if problems:
            raise ValueError(
                f"tool {function.__name__}: expected a function that is called with its arguments "
                f"by name and returns the result, found {problems[0]}"
            )
        self._types = {name: TypeAdapter[Any](hints[name]) for name in parameters}
        self._required = {
            name for name, parameter in parameters.items() if parameter.default is parameter.empty
        }

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Result of the tool; a ValueError, perhaps the tool's, names what is wrong."""
        problems = [f"no argument {name!r:.60}" for name in arguments if name not in self._types]
        problems += [f"{name!r} is missing" for name in self._types
                     if name in self._required and name not in arguments]  # fmt: skip
        values = dict[str, Any]()
        for name, kind in self._types.items():
            if name not in arguments:
                continue
            try:
                values[name] = kind.validate_json(json.dumps(arguments[name]), strict=True)
            except ValidationError as error:
                problems.append(f"{name!r}: {error.errors()[0]['msg']}")
        if problems:
            takes = ", ".join(self._types) or "none"
            raise ValueError(f"{'; '.join(problems)}; the arguments are {takes}")
        return self._function(**values)


def describe_unknown(name: str, names: Collection[str]) -> str:
    """Answer to a call of a tool that is none of `names`."""
    return f"there is no tool {name!r:.60}; there is {', '.join(names) or 'none'}"


def write_call(tool: str, /, **arguments: Any) -> Message:
    """Message of the assistant that calls a tool."""
    function = {"name": tool, "arguments": arguments}
    calls = [{"type": "function", "id": "call00000", "function": function}]
    return {"role": "assistant", "content": "", "tool_calls": calls}
