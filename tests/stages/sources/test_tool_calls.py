"""Results of tools, each with the call that it is of."""

import json

import pytest

from stages.records.problems import ToolCall, Turn
from stages.sources.quarantine import RejectedError
from stages.sources.tool_calls import link_results, read_calls, read_tools


def link(*results: ToolCall | None, ids: tuple[str | None, str | None] = ("1", "2")) -> list[str]:
    """Names of the calls that results are of, after calls of `add` and `sum`."""
    calls = (ToolCall("add", '{"x": 1}', ids[0]), ToolCall("sum", '{"x": 2}', ids[1]))
    turns = [Turn("user", "?"), Turn("assistant", "", calls=calls)]
    turns += [Turn("tool", "3", answers=result) for result in results]
    answers = [turn.answers for turn in link_results(turns)[2:]]
    assert all(call is not None for call in answers)
    return [f"{call.name} {call.id} {call.arguments}" for call in answers if call is not None]


ADD, SUM = 'add 1 {"x": 1}', 'sum 2 {"x": 2}'


@pytest.mark.parametrize(
    ("results", "calls"),
    [
        ((None, None), [ADD, SUM]),
        ((ToolCall("", "{}", "2"), ToolCall("", "{}", "1")), [SUM, ADD]),
        ((ToolCall("sum", "{}"), ToolCall("add", "{}")), [SUM, ADD]),
        ((ToolCall("sum", "{}"), None), [SUM, ADD]),
    ],
)
def test_a_result_is_of_the_call_with_its_id_else_its_name_else_the_next(
    results: tuple[ToolCall | None, ...], calls: list[str]
) -> None:
    assert link(*results) == calls


def test_an_id_that_no_call_has_is_rejected() -> None:
    with pytest.raises(RejectedError, match="'c9'; the calls are 1, 2"):
        link(ToolCall("", "{}", "c9"))


def test_calls_without_ids_take_those_of_their_results() -> None:
    results = (ToolCall("", "{}", "7"), ToolCall("", "{}", "8"))
    assert link(*results, ids=(None, None)) == ['add 7 {"x": 1}', 'sum 8 {"x": 2}']


@pytest.mark.parametrize(
    ("call", "key"),
    [
        ({"name": "add", "parameters": {"a": 3}}, "parameters"),
        ({"type": "tool_use", "id": "c", "name": "add", "input": {"a": 3}}, "input"),
        ({"name": "add", "arguments": {"a": 3}, "result": 4}, "result"),
        ({"function": {"name": "add", "args": "{}"}}, "args"),
    ],
)
def test_a_call_with_its_arguments_or_more_under_another_name_is_refused(call, key):
    with pytest.raises(RejectedError, match=rf"^tool call: '{key}' of 'add' is not read"):
        read_calls([call], "tool_calls")


def test_keys_that_are_null_or_say_a_calls_place_change_nothing():
    function = {"name": "add", "arguments": '{"a": 3}', "parameters": None}
    call = {"id": "c", "index": 0, "type": "function", "function": function, "result": None}
    assert read_calls([call], "tool_calls") == (ToolCall("add", '{"a": 3}', "c"),)


def test_each_of_a_list_may_be_json_text_as_when2call_has_its_tools():
    tools = [{"name": "add", "parameters": {"type": "object"}}, {"name": "sum"}]
    expected = [{"type": "function", "function": tool} for tool in tools]
    for value in (tools, [json.dumps(tool) for tool in tools]):
        assert json.loads(read_tools(value, "tools") or "") == expected
    calls = [{"name": "add", "arguments": {"a": 1}}, {"name": "sum", "arguments": "{}"}]
    assert read_calls([json.dumps(call) for call in calls], "answers") == (
        ToolCall("add", '{"a": 1}'), ToolCall("sum", "{}"),
    )  # fmt: skip
    with pytest.raises(RejectedError, match="tools"):
        read_tools(["add"], "tools")


def test_names_of_tools_alone_are_no_schemas():
    with pytest.raises(RejectedError, match="expected a schema with a name, found 'search'"):
        read_tools(["search"], "tools")
    with pytest.raises(RejectedError, match="'tools' should be JSON"):
        read_tools(['{"name": "search"'], "tools")
    with pytest.raises(RejectedError, match="expected a name and arguments, found 'search'"):
        read_calls(["search"], "calls")
