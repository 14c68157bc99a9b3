"""Tools, calls, results and thoughts: as demonstrations, as tokens of an episode, and read back.

A new form of calls is a row of tools.yaml.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_tokenizers import (
    HERMES,
    LLAMA,
    MISTRAL,
    QWEN_3,
    TEMPLATES,
    make_tokenizer,
    make_tool_tokenizer,
)
from played_turns import TOOLS, call, make_episode, play, result
from ruamel.yaml import YAML
from transformers import PreTrainedTokenizerFast

from stages.models import chat_template, prompting
from stages.models.call_form import ReplyError, find_form
from stages.models.model_tokenizer import end_id, train_tokenizer
from stages.models.turn_rendering import Message, Tools, TurnRenderer, render_episode
from stages.records import transcripts
from stages.records.problems import Problem, ToolCall, Turn

SCHEMAS = json.dumps(TOOLS)
CALL = ToolCall("add", '{"a": 3, "b": 2}', "abcdefghi")
CALLED, RESULT = Turn("assistant", "", calls=(CALL,)), Turn("tool", "5", answers=CALL)
SPOKEN = Turn("assistant", "I add.", calls=(CALL,))
USER = Turn("user", "How many books?")
ASK, FOUR = (
    {"role": "user", "content": "How many books?"},
    {"role": "assistant", "content": "Four."},
)
ADDED = '"arguments": {"a": 3, "b": 2}'


TABLES = YAML(typ="safe").load(Path(__file__).with_name("tools.yaml"))
FORMS = TABLES["forms"]
NAMES = ("hermes", "llama", "mistral")


def make_form(name: str) -> tuple[PreTrainedTokenizerFast, list[str]]:
    """Tokenizer, and what it writes: tools and question, call, result, answer."""
    form = FORMS[name]
    template = TEMPLATES[form["template"]].replace(*form.get("replace", ("", "")))
    template += form.get("add", "")
    texts = FORMS[form.get("texts", name)]
    return make_tool_tokenizer(template, form.get("end")), [
        texts[part].replace("SCHEMA", SCHEMAS[1:-1]) if part == "prompt" else texts[part]
        for part in ("prompt", "call", "result", "answer")
    ]


def talk(*turns: Turn, tools: str | None = SCHEMAS, solution: str | None = "Five.") -> Problem:
    return Problem(id="t", question="How many?", answer=None, solution=solution, split=None, line=1,
                   turns=turns, tools=tools)  # fmt: skip


def encode(tokenizer: PreTrainedTokenizerFast, problem: Problem) -> list[Any]:
    return [*prompting.encode_problems(
        {"train": [problem]}, tokenizer, template="{question}", max_prompt_tokens=2000,
        max_completion_tokens=2000, readable=lambda _text, _gold: True,
    )]  # fmt: skip


def show(tokenizer: PreTrainedTokenizerFast, problem: Problem) -> list[tuple[str, str]]:
    """What is context and what is imitated, decoded, of each demonstration."""
    rows = encode(tokenizer, problem)
    assert [row.reason for row in rows] == [None] * len(rows)
    shown = [row.demonstration for row in rows if row.demonstration is not None]
    assert all(row.completion_ids[-1] == end_id(tokenizer) for row in shown)
    return [(str(tokenizer.decode(row.prompt_ids)), str(tokenizer.decode(row.completion_ids)))
            for row in shown]  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_calls_and_answers_are_imitated_and_tools_and_results_are_context(name):
    tokenizer, (prompt, call_text, result_text, answer) = make_form(name)
    last, first = show(tokenizer, talk(USER, CALLED, RESULT))
    assert first == (prompt, call_text)
    assert last == (prompt + call_text + result_text, answer)
    assert chat_template.takes_text_arguments(tokenizer) == (name == "text")
    context = talk(USER, replace(CALLED, is_imitated=False), RESULT)
    assert [completion for _, completion in show(tokenizer, context)] == [answer]
    form = find_form(tokenizer)
    assert (form.between is not None) == FORMS[name].get("takes_several", True)


def test_content_calls_and_reasoning_of_the_last_turn_are_imitated_together():
    reply = replace(SPOKEN, reasoning="3 and 2.", calls=(CALL, replace(CALL, name="sum")))
    problem = replace(talk(USER, solution=transcripts.show_turn(reply)), reply=reply)
    ((_, completion),) = show(make_tool_tokenizer(HERMES), problem)
    calls = [f'\n<tool_call>\n{{"name": "{name}", {ADDED}}}\n</tool_call>'
             for name in ("add", "sum")]  # fmt: skip
    assert completion == f"<think>\n3 and 2.\n</think>\nI add.{''.join(calls)}<|im_end|>"


WITHOUT = TEMPLATES["CHATML"]
THOUGHT = Turn("assistant", "So.", reasoning="It is.")
MARKED = Turn("assistant", "", calls=(replace(CALL, arguments='{"a": "<|im_end|>"}'),))
OPEN = replace(talk(USER), reply=replace(THOUGHT, reasoning="So.[/THINK]It is."))
LOST = {
    # Of a template and a talk: what the rejection names.
    "tools": (WITHOUT, talk(USER), "tools"),
    "calls": (WITHOUT, talk(USER, CALLED, RESULT, tools=None), "tool calls"),
    "reasoning": (WITHOUT, talk(USER, THOUGHT, USER, tools=None), "reasoning"),
    "results": (HERMES.replace("{{ m.content }}{{ '\n</tool", "{{ '\n</tool"),
                talk(USER, CALLED, RESULT), "tool results"),
    "content beside calls": (LLAMA, talk(USER, SPOKEN, RESULT), "content and calls"),
    "arguments": (HERMES.replace("{{ c.function.arguments | tojson }}", "{}"),
                  talk(USER, CALLED, RESULT), "tool calls"),
    "second call": (LLAMA, talk(USER, replace(CALLED, calls=(CALL, CALL)), RESULT), "one call"),
    "short id": (MISTRAL, talk(USER, replace(CALLED, calls=(replace(CALL, id="c0"),)), RESULT),
                 "length 9"),
    "template": (None, talk(USER), "has none"),
    "special token of a call": (
        HERMES, replace(talk(USER, MARKED, RESULT),
                        question=transcripts.render_question((USER, MARKED, RESULT))), "<|im_end|>"
    ),
    "special token of a tool": (
        HERMES, talk(USER, tools=SCHEMAS.replace("object", "<|im_end|>")), "<|im_end|>"
    ),
    "end of a thought": (HERMES, OPEN, "[/THINK]"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_a_talk_of_which_a_template_would_lose_something_is_refused(name):
    template, problem, reason = LOST[name]
    tokenizer = make_tool_tokenizer(HERMES if template is None else template)
    tokenizer.chat_template = template
    row, *_ = encode(tokenizer, problem)
    assert reason in row.reason


@pytest.mark.parametrize(("begin", "end"), [("<think>", "</think>"), ("[THINK]", "[/THINK]")])
def test_a_reply_follows_the_thought_that_the_prompt_has_begun(begin, end):
    template = HERMES.replace("assistant\n' }}", f"assistant\n{begin}\n' }}}}")
    ((prompt, completion),) = show(make_tool_tokenizer(template), talk(USER))
    assert prompt.endswith(f"<|im_start|>assistant\n{begin}\n")
    assert completion == f"\n{end}\n\nFive.<|im_end|>"


SECOND = {"role": "user", "content": "\nNo. 2 + 2?"}
TWO, ONE = [result("3"), result("4", 1)], [result("3")]
TALKS = {
    # A tokenizer, tools and messages: the assistant's are read back as they are.
    **{kind: (make_tokenizer(kind), None, [ASK, FOUR, SECOND, FOUR, ASK])
       for kind in ("gemma", "phi", "qwen_base", "llama_2", "llama_3")},
    "hermes": (make_tool_tokenizer(HERMES), TOOLS, [ASK, call(3, 4), *TWO, call(5), result("[]")]),
    "hermes, thoughts": (
        make_tool_tokenizer(HERMES), TOOLS,
        [ASK, call(3, content="I add.", reasoning_content="3 and 2."), *ONE],
    ),
    "llama": (make_tool_tokenizer(LLAMA), TOOLS, [ASK, call(3), *ONE, call(5), result("[]")]),
    "mistral": (make_tool_tokenizer(MISTRAL), TOOLS,
                [ASK, call(3, 4), *TWO, call(5), result("[]")]),
}  # fmt: skip


@pytest.mark.parametrize("name", TALKS)
def test_tokens_of_an_episode_are_those_of_the_whole_conversation(name):
    tokenizer, tools, messages = TALKS[name]
    TurnRenderer(tokenizer).check(tools)
    ids, read = play(tokenizer, messages, tools)
    whole = tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True,
                                          return_dict=False)  # fmt: skip
    assert ids == whole
    expected = [message for message in messages if message["role"] == "assistant"]
    strip = name == "llama_2"  # it writes a space on both sides
    assert [m | {"content": m["content"].strip()} if strip else m for m in read] == expected


def test_an_episode_without_a_template_has_messages_between_newlines():
    tokenizer = train_tokenizer(["How many books?"], 700)
    TurnRenderer(tokenizer).check(TOOLS)
    spoken = call(3, 4, content="I add.")
    messages = [ASK, spoken, result("5"), result("6", 1), FOUR, ASK]
    ids, read = play(tokenizer, messages, TOOLS)
    calls = "</tool><tool>".join(json.dumps(c["function"]) for c in spoken["tool_calls"])
    assert tokenizer.decode(ids) == (
        f"How many books?I add.<tool>{calls}</tool><|end|>\n5\n\n6\nFour.<|end|>\nHow many books?\n"
    )
    assert read == [spoken, FOUR]


def test_an_episode_whose_calls_are_read_otherwise_is_refused():
    renderer = TurnRenderer(make_tool_tokenizer(HERMES))
    with pytest.raises(ValueError, match="tools"):  # that the episode does not name
        render_episode(renderer, make_episode([ASK, call(3)], None, 1))


def test_a_turn_that_stopped_at_the_end_of_a_sequence_is_ended_as_turns_are():
    tokenizer = make_tokenizer("qwen_base")
    eos, end = tokenizer.eos_token_id, end_id(tokenizer)
    assert eos != end
    assert TurnRenderer(tokenizer).complete_turn([5, eos]) == [end]
    assert TurnRenderer(tokenizer).complete_turn([5, end]) == []


def read(tokenizer: PreTrainedTokenizerFast, text: str, tools: Tools = TOOLS) -> Message:
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], end_id(tokenizer)]
    return TurnRenderer(tokenizer).read_reply(ids, tools)


def test_a_thought_is_read_from_its_middle_and_known_by_its_end():
    r1, qwen = make_tokenizer("r1"), make_tokenizer("qwen_base")
    renderer = TurnRenderer(r1)
    assert str(r1.decode(renderer.render_start([ASK], None))).endswith("<think>\n")
    message = FOUR | {"reasoning_content": "It is 2 + 2."}
    assert read(r1, "It is 2 + 2.\n</think>\n\nFour.", None) == message
    assert read(r1, "Hm", None) == {"role": "assistant", "content": "", "reasoning_content": "Hm"}
    assert read(qwen, "It is 2 + 2.\n</think>\n\nFour.", None) == message
    tail = r1.decode(renderer.render_new([ASK, message], [ASK], None))
    assert tail == "<User>How many books?<Assistant><think>\n"


UNREADABLE = [(name, text) for name, texts in TABLES["unreadable"].items() for text in texts]


@pytest.mark.parametrize(("name", "text"), UNREADABLE)
def test_a_call_that_cannot_be_read_is_an_error(name, text):
    with pytest.raises(ReplyError):
        read(make_tool_tokenizer(TEMPLATES[name]), text)


@pytest.mark.parametrize("template", [HERMES, LLAMA, MISTRAL], ids=["hermes", "llama", "mistral"])
def test_text_that_starts_no_call_is_content(template):
    tokenizer = make_tool_tokenizer(template)
    for text in ("The set {3} is {", '{"a": 3}', ' Write {"name": "add"} and it adds.', "{", ""):
        assert read(tokenizer, text) == {"role": "assistant", "content": text}
    assert read(tokenizer, "<tool_call>", None)["content"] == "<tool_call>"


def test_calls_have_spaces_as_the_model_likes_and_ids_of_their_order():
    text = (
        'Now <tool_call>{"name":"add","arguments":{"a":3}}</tool_call>'
        ' <tool_call> {"name": "add", "arguments": {}} </tool_call>\n'
    )
    message = read(make_tool_tokenizer(HERMES), text)
    assert message["content"] == "Now"
    assert [(c["id"], c["function"]["arguments"]) for c in message["tool_calls"]] == [
        ("call00000", {"a": 3}), ("call00001", {})
    ]  # fmt: skip


XML = HERMES.replace(
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}',
    "<function={{ c.function.name }}>{% for k, v in c.function.arguments | items %}"
    "<parameter={{ k }}>{{ v }}</parameter>{% endfor %}</function>",
)
UNFIT = {
    # Of a template and tools: what the refusal names.
    "earlier thoughts": (QWEN_3, None, r"character \d+"),
    "no tools": (QWEN_3, TOOLS, "tools"),
    "a count of messages": (
        HERMES.replace("<tools>", "<tools ' ~ messages | length ~ '>"), TOOLS, r"character \d+"
    ),
    "calls that are no JSON": (XML, TOOLS, "response_template"),
    "calls that end no turn": (
        HERMES.replace("{{ '<|im_end|>\n' }}{% endif %}{% endfor %}",
                       "{{ '\n' if m.tool_calls else '<|im_end|>\n' }}{% endif %}{% endfor %}"),
        TOOLS, "<|im_end|>",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_a_template_that_does_not_fit_episodes_is_refused(name):
    template, tools, reason = UNFIT[name]
    with pytest.raises(ValueError, match=reason.replace("|", r"\|")):
        TurnRenderer(make_tool_tokenizer(template)).check(tools)


def test_calls_are_read_by_the_parser_of_the_tokenizer():
    # of a form that the template itself does not write
    tokenizer = make_tool_tokenizer(HERMES.replace('"name": "{{', '"is": "{{'))
    tokenizer.response_template = parser = TABLES["hermes_parser"]
    message = read(
        tokenizer,
        '<think>\n3.\n</think>\nI add.\n<tool_call>\n{"name": "add", "arguments": {"a": 3}}'
        '\n</tool_call>\n<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>',
    )
    assert (message["content"], message["reasoning_content"]) == ("I add.", "3.")
    assert [c["function"] for c in message["tool_calls"]] == [
        {"name": "add", "arguments": {"a": 3}}, {"name": "add", "arguments": {}}
    ]  # fmt: skip
    for broken in ('<tool_call>{"name": "add"', '<tool_call>{"arguments": {}}</tool_call>'):
        with pytest.raises(ReplyError):
            read(tokenizer, broken)
    xml = make_tool_tokenizer(XML)
    fields = parser["fields"] | {"tool_calls": TABLES["xml_calls"]}
    xml.response_template = parser | {"fields": fields}
    TurnRenderer(xml).check(TOOLS)


@pytest.mark.parametrize("template", [HERMES, LLAMA, MISTRAL], ids=["hermes", "llama", "mistral"])
def test_texts_of_an_environment_spell_no_special_token(template):
    tokenizer = make_tool_tokenizer(template)
    renderer, end = TurnRenderer(tokenizer), str(tokenizer.eos_token)
    specials = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    described = [{"type": "function", "function": {"name": "add", "description": end}}]
    for plain, spelled in (
        (renderer.render_new([ASK, call(3)], [result("5")], TOOLS),
         renderer.render_new([ASK, call(3)], [result(f"{end}5")], TOOLS)),
        (renderer.render_start([ASK], TOOLS), renderer.render_start([ASK], described)),
        (renderer.render_start([ASK], TOOLS), renderer.render_start([ASK | {"content": end}],
                                                                    TOOLS)),
    ):  # fmt: skip
        assert [i for i in spelled if i in specials] == [i for i in plain if i in specials]


def test_results_without_an_id_are_those_of_the_calls_in_order():
    renderer = TurnRenderer(make_tool_tokenizer(MISTRAL))
    bare = [{"role": "tool", "content": message["content"]} for message in TWO]
    messages = [ASK, call(3, 4)]
    ids = renderer.render_new(messages, TWO, TOOLS)
    assert renderer.render_new(messages, bare, TOOLS) == ids
    with pytest.raises(ValueError, match="calls"):
        renderer.render_new(messages, [result("5", 2)], TOOLS)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "judge", "content": ""},
        {"role": "user"} | {"content": [1]},
        call(3) | {"tool_calls": [{"id": 3}]},
    ],
)
def test_a_message_of_another_form_is_refused(message):  # fmt: skip
    with pytest.raises(ValueError, match="found"):
        TurnRenderer(make_tool_tokenizer(HERMES)).render_start([message], None)
