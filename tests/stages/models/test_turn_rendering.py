"""Episodes as tokens: equal to the whole conversation by the template, read back, or refused."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from chat_tokenizers import HERMES, LLAMA, MISTRAL, make_tokenizer, make_tool_tokenizer
from transformers import PreTrainedTokenizerFast

from stages.models.call_form import ReplyError
from stages.models.model_tokenizer import end_id, train_tokenizer
from stages.models.turn_rendering import Message, Tools, TurnRenderer

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
ASKED = {"role": "user", "content": "How many books?"}
FOUR = {"role": "assistant", "content": "Four."}
QWEN_3 = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and loop.last %}"
    "{{ '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{% endif %}"
    "{{ m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HERMES_PARSER: dict[str, Any] = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>", "content": "text"},
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>", "close": "</tool_call>", "repeats": True,
            "content": "json", "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"content": "text"},
    },
}  # fmt: skip


XML = HERMES.replace(
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}',
    "<function={{ c.function.name }}>{% for k, v in c.function.arguments | items %}"
    "<parameter={{ k }}>{{ v }}</parameter>{% endfor %}</function>",
)
XML_CALLS = {
    "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>]+)>",
    "close_pattern": r"</function>\s*</tool_call>", "repeats": True, "content": "xml-inline",
    "content_args": {"tag_pattern": "<parameter=(?P<key>[^>]+)>(?P<value>.*?)</parameter>"},
    "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
}  # fmt: skip


def call(*numbers: int, content: str = "", **more: Any) -> dict[str, Any]:
    calls = [
        {"type": "function", "id": f"call{index:05d}",
         "function": {"name": "add", "arguments": {"a": number, "b": [{"c": "}"}]}}}
        for index, number in enumerate(numbers)
    ]  # fmt: skip
    return {"role": "assistant", "content": content, **more, "tool_calls": calls}


def result(text: str, index: int = 0) -> dict[str, Any]:
    return {"role": "tool", "name": "add", "tool_call_id": f"call{index:05d}", "content": text}


def play(
    tokenizer: PreTrainedTokenizerFast, messages: Sequence[Message], tools: Tools
) -> tuple[list[int], list[Message]]:
    """Tokens of a conversation as an episode has them, and the assistant's messages read back."""
    renderer, first = TurnRenderer(tokenizer), [m["role"] for m in messages].index("assistant")
    ids, read = renderer.render_start(messages[:first], tools), list[Message]()
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            sampled = renderer.render_reply(messages[:place], message, tools)
            read.append(renderer.read_reply(sampled, tools))
            until = next(
                (i for i in range(place + 1, len(messages)) if messages[i]["role"] == "assistant"),
                len(messages),
            )
            ids += sampled
            ids += renderer.render_new(messages[: place + 1], messages[place + 1 : until], tools)
    return ids, read


def tokenize_whole(
    tokenizer: PreTrainedTokenizerFast, messages: Sequence[Message], tools: Tools
) -> list[int]:
    whole: Any = tokenizer.apply_chat_template(
        [dict(message) for message in messages], tools=[dict(tool) for tool in tools or ()] or None,
        add_generation_prompt=True, return_dict=False,
    )  # fmt: skip
    return whole


@pytest.mark.parametrize("kind", ["gemma", "phi", "qwen_base", "llama_2", "llama_3"])
def test_tokens_of_an_episode_are_those_of_the_whole_conversation(kind: str):
    tokenizer = make_tokenizer(kind)
    messages = [ASKED, FOUR, {"role": "user", "content": "\nNo. 2 + 2?"}, FOUR, ASKED]
    TurnRenderer(tokenizer).check(None)
    ids, read = play(tokenizer, messages, None)
    assert ids == tokenize_whole(tokenizer, messages, None)
    assert [message["content"].strip() for message in read] == ["Four.", "Four."]


def test_a_turn_that_stopped_at_the_end_of_a_sequence_is_ended_as_turns_are():
    tokenizer = make_tokenizer("qwen_base")
    eos, end = tokenizer.eos_token_id, end_id(tokenizer)
    assert eos != end
    assert TurnRenderer(tokenizer).complete_turn([5, eos]) == [end]
    assert TurnRenderer(tokenizer).complete_turn([5, end]) == []


@pytest.mark.parametrize(
    ("template", "calls"), [(HERMES, (3, 4)), (LLAMA, (3,)), (MISTRAL, (3, 4))]
)
def test_tokens_with_tools_are_those_of_the_whole_conversation(template: str, calls: tuple[int]):
    tokenizer = make_tool_tokenizer(template)
    results = [result(f"{number}", index) for index, number in enumerate(calls)]
    messages = [ASKED, call(*calls), *results, call(5), result("[]")]
    TurnRenderer(tokenizer).check(TOOLS)
    ids, read = play(tokenizer, messages, TOOLS)
    assert ids == tokenize_whole(tokenizer, messages, TOOLS)
    assert read == [call(*calls), call(5)]


def test_thoughts_and_content_before_calls_are_read():
    tokenizer = make_tool_tokenizer(HERMES)
    messages = [ASKED, call(3, content="I add.", reasoning_content="3 and 2."), result("5")]
    ids, read = play(tokenizer, messages, TOOLS)
    assert ids == tokenize_whole(tokenizer, messages, TOOLS)
    assert read == [messages[1]]


def test_a_thought_that_the_template_has_begun_is_read_from_its_middle():
    tokenizer = make_tokenizer("r1")
    renderer = TurnRenderer(tokenizer)
    renderer.check(None)
    assert str(tokenizer.decode(renderer.render_start([ASKED], None))).endswith("<think>\n")
    for text, reasoning, content in [
        ("It is 2 + 2.\n</think>\n\nFour.", "It is 2 + 2.", "Four."), ("Hm", "Hm", "")
    ]:  # fmt: skip
        sampled = [*tokenizer(text, add_special_tokens=False)["input_ids"], end_id(tokenizer)]
        message = renderer.read_reply(sampled, None)
        assert message["reasoning_content"] == reasoning
        assert message["content"] == content
        tail = tokenizer.decode(renderer.render_new([ASKED, message], [ASKED], None))
        assert tail == "<User>How many books?<Assistant><think>\n"


def test_the_end_of_a_thought_tells_that_there_was_one():
    tokenizer = make_tokenizer("qwen_base")
    ids = tokenizer("2 + 2.\n</think>\n\nFour.")["input_ids"]
    message = TurnRenderer(tokenizer).read_reply(ids, None)
    assert message == FOUR | {"reasoning_content": "2 + 2."}


def test_a_template_that_drops_earlier_thoughts_is_refused_with_the_place():
    tokenizer = make_tool_tokenizer(QWEN_3)
    with pytest.raises(ValueError, match=r"part at character \d+.*<think>"):
        TurnRenderer(tokenizer).check(None)


@pytest.mark.parametrize(
    ("template", "part"),
    [
        (QWEN_3, "same with and without tools"),
        (HERMES.replace("<tools>", "<tools ' ~ messages | length ~ '>"),
         "part at character"),
        (XML,
         "response_template"),
        (HERMES.replace("{{ '<|im_end|>\n' }}{% endif %}{% endfor %}",
                        "{{ '\n' if m.tool_calls else '<|im_end|>\n' }}{% endif %}{% endfor %}"),
         "ends each turn of the assistant"),
    ],
)  # fmt: skip
def test_a_template_that_does_not_fit_tools_is_refused(template: str, part: str):
    with pytest.raises(ValueError, match=part):
        TurnRenderer(make_tool_tokenizer(template)).check(TOOLS)


@pytest.mark.parametrize("template", [HERMES, LLAMA, MISTRAL])
def test_an_environments_text_spells_no_special_token(template: str):
    tokenizer = make_tool_tokenizer(template)
    renderer, end = TurnRenderer(tokenizer), str(tokenizer.eos_token)
    plain, spelled = (
        renderer.render_new([ASKED, call(3)], [result(text)], TOOLS) for text in ("5", f"{end}5")
    )
    specials = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    assert [i for i in spelled if i in specials] == [i for i in plain if i in specials]
    tools = [{"type": "function", "function": {"name": "add", "description": end}}]
    counts = [
        renderer.render_start([start], tools).count(end_id(tokenizer))
        for start, tools in ((ASKED, TOOLS), (ASKED | {"content": end}, tools))
    ]
    assert counts[0] == counts[1]


def test_results_without_an_id_are_those_of_the_calls_in_order():
    renderer = TurnRenderer(make_tool_tokenizer(MISTRAL))
    results = [result("5"), result("6", 1)]
    bare = [{"role": "tool", "content": message["content"]} for message in results]
    messages = [ASKED, call(3, 4)]
    ids = renderer.render_new(messages, results, TOOLS)
    assert renderer.render_new(messages, bare, TOOLS) == ids
    with pytest.raises(ValueError, match="the calls are"):
        renderer.render_new(messages, [result("5", 2)], TOOLS)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (HERMES, '<tool_call>\n{"name": "add", "arguments": {"a": 3}\n</tool_call>'),
        (HERMES, '<tool_call>\n{"name": "add", "arguments": {"a": 3}}'),
        (HERMES, '<tool_call>\n{"name": "add", "arguments": [3]}\n</tool_call>'),
        (HERMES, '<tool_call>\n{"name": "add", "arguments": {"a": NaN}}\n</tool_call>'),
        (HERMES, '<tool_call>\n{"arguments": {"a": 3}}\n</tool_call>'),
        (HERMES, '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call> So it is.'),
        (HERMES, "<tool_call>" + "[" * 5000),
        (HERMES, r'<tool_call>{"name": "add", "arguments": {"a": "\ud800"}}</tool_call>'),
        (LLAMA, '{"name": "add", "parameters": {"a": 3}'),
        (LLAMA, '{"name": "add", "parameters": {}}; {"name": "add", "parameters": {}}'),
        (MISTRAL, '[TOOL_CALLS] {"name": "add", "arguments": {}}'),
        (MISTRAL, '[TOOL_CALLS] [{"name": "add", "arguments": {}, "id": "short"}]'),
    ],
)
def test_a_call_that_cannot_be_read_is_an_error(template: str, text: str):
    tokenizer = make_tool_tokenizer(template)
    with pytest.raises(ReplyError, match="expected"):
        TurnRenderer(tokenizer).read_reply(tokenizer(text)["input_ids"], TOOLS)


@pytest.mark.parametrize("template", [HERMES, LLAMA, MISTRAL])
@pytest.mark.parametrize(
    "text", ["The set {3} is {", '{"a": 3}', ' Write {"name": "add"} and it adds.', "{", ""]
)
def test_text_with_a_brace_is_content(template: str, text: str):
    tokenizer = make_tool_tokenizer(template)
    ids = [*tokenizer(text)["input_ids"], end_id(tokenizer)]
    message = TurnRenderer(tokenizer).read_reply(ids, TOOLS)
    assert message == {"role": "assistant", "content": text}


def test_without_tools_a_call_is_content():
    tokenizer = make_tool_tokenizer(HERMES)
    message = TurnRenderer(tokenizer).read_reply(tokenizer("<tool_call>")["input_ids"], None)
    assert message["content"] == "<tool_call>"


def test_spaces_in_calls_are_as_the_model_likes():
    tokenizer = make_tool_tokenizer(HERMES)
    text = (
        '<tool_call>{"name":"add","arguments":{"a":3}}</tool_call>'
        ' <tool_call> {"name": "add", "arguments": {}} </tool_call>\n'
    )
    message = TurnRenderer(tokenizer).read_reply(tokenizer(text)["input_ids"], TOOLS)
    assert [c["function"]["arguments"] for c in message["tool_calls"]] == [{"a": 3}, {}]
    assert len({c["id"] for c in message["tool_calls"]}) == 2


def test_calls_are_read_by_the_tokenizers_own_parser():
    # of a form that the template itself does not write
    tokenizer = make_tool_tokenizer(HERMES.replace('"name": "{{', '"is": "{{'))
    tokenizer.response_template = HERMES_PARSER
    renderer = TurnRenderer(tokenizer)
    text = (
        '<think>\n3.\n</think>\nI add.\n<tool_call>\n{"name": "add", "arguments": {"a": 3}}'
        '\n</tool_call>\n<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call><|im_end|>'
    )
    message = renderer.read_reply(tokenizer(text)["input_ids"], TOOLS)
    assert (message["content"], message["reasoning_content"]) == ("I add.", "3.")
    assert [c["function"] for c in message["tool_calls"]] == [
        {"name": "add", "arguments": {"a": 3}}, {"name": "add", "arguments": {}}
    ]  # fmt: skip
    for broken in ('<tool_call>{"name": "add"', '<tool_call>{"arguments": {}}</tool_call>'):
        with pytest.raises(ReplyError):
            renderer.read_reply(tokenizer(broken)["input_ids"], TOOLS)


def test_calls_that_are_no_json_need_the_tokenizers_own_parser():
    tokenizer = make_tool_tokenizer(XML)
    tokenizer.response_template = {
        **HERMES_PARSER, "fields": {**HERMES_PARSER["fields"], "tool_calls": XML_CALLS}
    }  # fmt: skip
    TurnRenderer(tokenizer).check(TOOLS)


def test_without_a_chat_template_messages_stand_between_newlines():
    tokenizer = train_tokenizer(["How many books?"], 700)
    renderer = TurnRenderer(tokenizer)
    renderer.check(TOOLS)
    messages = [ASKED, call(3, 4, content="I add."), result("5"), result("6", 1), FOUR, ASKED]
    ids, read = play(tokenizer, messages, TOOLS)
    calls = "</tool><tool>".join(json.dumps(c["function"]) for c in call(3, 4)["tool_calls"])
    assert tokenizer.decode(ids) == (
        f"How many books?I add.<tool>{calls}</tool><|end|>\n5\n\n6\nFour.<|end|>\nHow many books?\n"
    )
    assert read == [messages[1], FOUR]
    begun = make_tokenizer("plain")
    start = TurnRenderer(begun).render_start([ASKED], None)
    assert start == begun("How many books?")["input_ids"]
    assert begun.decode(start[:1]) == "<s>"
