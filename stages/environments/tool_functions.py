"""Tools of an environment: Python functions that the assistant calls by name, in two lines.

    tools = Tools(calculate)              # tools.schemas is what `start` returns as tools
    results = tools.answer(message)       # messages with the results of the calls; none without any

A tool's schema is read off its type hints and its docstring, which has a section `Args:`. A call
that does not fit is answered with a text that says so to the model; so is a ValueError of the tool.
Such a result has a key `error`, which metric `tool_errors` counts.
Whatever else a tool raises is a failure of the environment. The only code that runs is the tool's:
what a model wrote is its arguments, JSON values of the types of the hints.
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
    """Functions that may be called, by their names."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        """Refuses, with a ValueError, a function that no call can fit.

        transformers refuses one without a type hint and a description of each argument.
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
    """A function with the types of its arguments."""

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
        """The result; a ValueError, perhaps the tool's, says what is wrong with the arguments."""
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
    """What the model reads after a call of a tool that is none of `names`."""
    return f"there is no tool {name!r:.60}; there is {', '.join(names) or 'none'}"


def write_call(tool: str, /, **arguments: Any) -> Message:
    """Message of the assistant that calls a tool."""
    function = {"name": tool, "arguments": arguments}
    calls = [{"type": "function", "id": "call00000", "function": function}]
    return {"role": "assistant", "content": "", "tool_calls": calls}
