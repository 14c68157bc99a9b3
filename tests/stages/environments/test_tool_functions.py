"""Calls of tools: answered with a result, or with a text that says what does not fit."""

from typing import Any, Literal

import pytest

from stages.environments.tool_functions import Tools, write_call


def add(a: int, b: float = 1.0, unit: Literal["m", "s"] | None = None) -> dict[str, Any]:
    """Adds two numbers.

    Args:
        a: The first.
        b: The second.
        unit: Of both.
    """
    if a == 13:
        raise ValueError("13 is not to be added")
    if a == 14:
        raise KeyError("14")
    return {"sum": a + b, "unit": unit}


def test_schemas_are_read_off_hints_and_docstrings():
    schema = (Tools(add).schemas or [])[0]
    parameters = schema["function"]["parameters"]
    assert schema["function"]["description"] == "Adds two numbers."
    assert parameters["required"] == ["a"]
    assert parameters["properties"]["a"] == {"type": "integer", "description": "The first."}
    assert parameters["properties"]["unit"]["enum"] == ["m", "s"]
    assert Tools().schemas is None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"a": 2}, '{"sum": 3.0, "unit": null}'),
        ({"a": 2, "b": 3, "unit": "m"}, '{"sum": 5.0, "unit": "m"}'),
        ({"a": 13}, "error: 13 is not to be added"),
        ({}, "'a' is missing"),
        ({"a": "2"}, "'a': Input should be a valid integer"),
        ({"a": True}, "'a': Input should be a valid integer"),
        ({"a": 2.5}, "'a': Input should be a valid integer"),
        ({"a": 2, "unit": "kg"}, "'unit': Input should be 'm' or 's'"),
        (
            {"unit": "kg", "a": "2"},  # in the order of the function's arguments
            "error: 'a': Input should be a valid integer; 'unit': Input should be 'm' or 's'",
        ),
        ({"a": 2, "c": 1}, "no argument 'c'"),
        ({"b": 2, "c": 1}, "'a' is missing; the arguments are a, b, unit"),
    ],
)
def test_a_call_is_answered(arguments: dict[str, Any], text: str):
    (result,) = Tools(add).answer(write_call("add", **arguments))
    assert text in result.pop("content")
    assert result == {"role": "tool", "name": "add", "tool_call_id": "call00000"}


def test_each_call_is_answered_in_order_and_text_has_no_answer():
    tools = Tools(add)
    parts = write_call("sum"), write_call("add", a=2)
    message = {"tool_calls": [call for part in parts for call in part["tool_calls"]]}
    results = tools.answer(message)
    assert results[0]["content"] == "error: there is no tool 'sum'; there is add"
    assert '"sum": 3.0' in results[1]["content"]
    assert tools.answer({"role": "assistant", "content": "2"}) == []


def test_other_errors_of_a_tool_are_failures_of_the_environment():
    with pytest.raises(KeyError):
        Tools(add).answer(write_call("add", a=14))


def test_a_function_that_no_call_can_fit_is_refused_when_the_environment_is_made() -> None:
    def unhinted(number):  # pyright: ignore
        return number

    def starred(*numbers: int) -> int:
        return sum(numbers)

    def keyed(number: int, **others: int) -> int:
        return number + len(others)

    async def waiting(number: int) -> int:
        return number

    refused = {
        unhinted: "number without one: add it", starred: r"\*numbers: int: name each argument",
        keyed: r"\*\*others: int: name each", waiting: "`async def`: call `asyncio.run",
    }  # fmt: skip
    for function, problem in refused.items():
        expected = f"tool {function.__name__}: expected a function with a type hint.* {problem}"
        with pytest.raises(ValueError, match=expected):
            Tools(function)
