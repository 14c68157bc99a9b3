"""Tools, calls, results and thoughts: as demonstrations, as tokens of an episode, and read back.

A new form of calls is a row of tools.yaml.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_tokenizers import make
from played_turns import TOOLS, call, make_episode, play, result
from ruamel.yaml import YAML
from transformers import PreTrainedTokenizerFast

from stages.models import chat_template, prompting
from stages.models.call_form import ReplyError, find_form
from stages.models.kept_thoughts import keep_thoughts
from stages.models.model_tokenizer import end_id, train_tokenizer
from stages.models.turn_rendering import Message, Tools, TurnRenderer, render_episode
from stages.records import transcripts
from stages.records.problems import Problem, ToolCall, Turn

TABLES = YAML(typ="safe").load(Path(__file__).with_name("tools.yaml"))
FORMS, NAMES = TABLES["forms"], ("HERMES", "LLAMA", "MISTRAL")
SCHEMAS = json.dumps(TOOLS)
CALL = ToolCall("add", '{"a": 3, "b": 2}', "abcdefghi")
CALLED = Turn("assistant", "", calls=(CALL,))
TURNS = {
    "user": Turn("user", "How many books?"),
    "result": Turn("tool", "5", answers=CALL),
    "called": CALLED,
    "spoken": replace(CALLED, content="I add."),
    "called twice": replace(CALLED, calls=(CALL, CALL)),
    "short id": replace(CALLED, calls=(replace(CALL, id="c0"),)),
    "marked": replace(CALLED, calls=(replace(CALL, arguments='{"a": "<|im_end|>"}'),)),
    "thought": Turn("assistant", "So.", reasoning="It is."),
    "open": Turn("assistant", "So.", reasoning="So.[/THINK]It is."),
}
CALLING = ["user", "called", "result"]
ASK = {"role": "user", "content": "How many books?"}
FOUR = {"role": "assistant", "content": "Four."}


def make_form(name: str) -> PreTrainedTokenizerFast:
    form = FORMS[name]
    tokenizer = make(f"tool {form['template']} {form.get('end', '')}", *form.get("replace", ()))
    tokenizer.chat_template += form.get("add", "")
    return tokenizer


def talk(*names: str, tools: str | None = SCHEMAS, reply: Turn | None = None) -> Problem:
    turns = tuple(TURNS[name] for name in names)
    solution = "Five." if reply is None else transcripts.show_turn(reply)
    return Problem(id="t", question=transcripts.render_question(turns), answer=None, split=None,
                   solution=solution, line=1, turns=turns, tools=tools, reply=reply)  # fmt: skip


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
    tokenizer, texts = make_form(name), FORMS[FORMS[name].get("texts", name)]
    called = texts["prompt"].replace("SCHEMA", SCHEMAS[1:-1]), texts["call"]
    answered = "".join(called) + texts["result"], texts["answer"]
    assert show(tokenizer, talk(*CALLING)) == [answered, called]
    assert chat_template.takes_text_arguments(tokenizer) == (name == "text")
    first, *others = talk(*CALLING).turns
    context = (first, replace(others[0], is_imitated=False), others[1])
    assert show(tokenizer, replace(talk(*CALLING), turns=context)) == [answered]
    assert (find_form(tokenizer).between is not None) == FORMS[name].get("takes_several", True)


def test_content_calls_and_reasoning_of_the_last_turn_are_imitated_together():
    reply = replace(TURNS["spoken"], reasoning="3 and 2.", calls=(CALL, replace(CALL, name="sum")))
    ((_, completion),) = show(make("tool HERMES"), talk("user", reply=reply))
    arguments = '"arguments": {"a": 3, "b": 2}'
    calls = [f'\n<tool_call>\n{{"name": "{name}", {arguments}}}\n</tool_call>'
             for name in ("add", "sum")]  # fmt: skip
    assert completion == f"<think>\n3 and 2.\n</think>\nI add.{''.join(calls)}<|im_end|>"


@pytest.mark.parametrize("name", TABLES["lost"])
def test_a_talk_of_which_a_template_would_lose_something_is_refused(name):
    row = {"template": "HERMES", "talk": CALLING, "replace": ()} | TABLES["lost"][name]
    tokenizer = make(f"tool {row['template'] or 'HERMES'}", *row["replace"])
    if row["template"] is None:
        tokenizer.chat_template = None
    tools = row.get("tools", SCHEMAS)
    if tools:
        tools = tools.replace(*row.get("replace in tools", ("", "")))
    reply = TURNS.get(row.get("reply"))
    result, *_ = encode(tokenizer, talk(*row["talk"], tools=tools, reply=reply))
    assert row["reason"] in result.reason


def test_a_reply_follows_the_thought_that_the_prompt_has_begun():
    tokenizer = make("tool HERMES", "assistant\n' }}", "assistant\n[THINK]\n' }}")
    ((prompt, completion),) = show(tokenizer, talk("user"))
    assert prompt.endswith("assistant\n[THINK]\n")
    assert completion == "\n[/THINK]\n\nFive.<|im_end|>"


SECOND = {"role": "user", "content": "\nNo. 2 + 2?"}
TWO, ONE = [result("3"), result("4", 1)], [result("3")]
SEVERAL = [ASK, call(3, 4), *TWO, call(5), result("[]")]
THOUGHT = call(3, content="I add.", reasoning_content="3 and 2.")
TALKS = {
    # Of a tokenizer messages: the assistant's are read back as they are.
    **{kind: [ASK, FOUR, SECOND, FOUR, ASK]
       for kind in ("gemma", "phi", "qwen_base", "llama_2", "llama_3")},
    "tool HERMES": SEVERAL, "tool MISTRAL": SEVERAL,
    "tool HERMES ": [ASK, THOUGHT, *ONE],
    "tool LLAMA": [ASK, call(3), *ONE, call(5), result("[]")],
    "kept tool QWEN": [
        ASK, call(3, 4, content="I add.", reasoning_content="3."), *TWO, call(5), *ONE,
        FOUR, SECOND, call(6, reasoning_content="6."), result("[]"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", TALKS)
def test_tokens_of_an_episode_are_those_of_the_whole_conversation(name):
    tokenizer, messages = make(name.removeprefix("kept ")), TALKS[name]
    tools = TOOLS if "tool" in name else None
    if name.startswith("kept "):
        keep_thoughts(tokenizer)
    TurnRenderer(tokenizer).check(tools)
    ids, read = play(tokenizer, messages, tools)
    assert ids == tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True,
                                                return_dict=False)  # fmt: skip
    expected = [message for message in messages if message["role"] == "assistant"]
    strip = name == "llama_2"  # it writes a space on both sides
    assert [m | {"content": m["content"].strip()} if strip else m for m in read] == expected


def test_an_episode_without_a_template_has_messages_between_newlines():
    tokenizer = train_tokenizer(["How many books?"], 700)
    tokenizer.add_special_tokens({"eos_token": "<\N{GRINNING FACE}>"})  # no escape of Jinja
    TurnRenderer(tokenizer).check(TOOLS)
    spoken = call(3, 4, content="I add.")
    messages = [ASK, spoken, result("5"), result("6", 1), FOUR, ASK]
    ids, read = play(tokenizer, messages, TOOLS)
    calls = "</tool><tool>".join(json.dumps(c["function"]) for c in spoken["tool_calls"])
    assert tokenizer.decode(ids) == (
        f"How many books?I add.<tool>{calls}</tool><\N{GRINNING FACE}>\n5\n\n6\nFour."
        "<\N{GRINNING FACE}>\nHow many books?\n"
    )
    assert read == [spoken, FOUR]


def test_messages_that_an_environment_may_not_return_are_refused():
    renderer = TurnRenderer(make("tool HERMES"))
    with pytest.raises(ValueError, match="tools"):  # calls of tools that the episode does not name
        render_episode(renderer, make_episode([ASK, call(3)], None, 1))
    part = "'\n' + (m.content[:3] if m.role == 'assistant' else m.content)"
    shown = make("tool HERMES", "'\n' + m.content", part)
    for tokenizer, reply in ((make("r1"), FOUR | {"reasoning_content": "2 + 2."}), (shown, FOUR)):
        with pytest.raises(ValueError, match="the same after parsing"):  # the template drops a part
            render_episode(TurnRenderer(tokenizer), make_episode([ASK, reply], None, 1))
    for message in ({"role": "judge", "content": ""}, {"role": "user", "content": [1]},
                    call(3) | {"tool_calls": [{"id": 3}]},
                    call(3) | {"tool_calls": [{"name": "add", "args": {"a": 3}}]}):  # fmt: skip
        with pytest.raises(ValueError, match="found"):
            renderer.render_start([message], None)


def test_a_turn_that_stopped_at_the_end_of_a_sequence_is_ended_as_turns_are():
    renderer = TurnRenderer(make("qwen_base"))
    eos, end = renderer.tokenizer.eos_token_id, end_id(renderer.tokenizer)
    assert eos != end
    assert [renderer.complete_turn([5, last]) for last in (eos, end)] == [[end], []]


def read(tokenizer: PreTrainedTokenizerFast, text: str, tools: Tools = TOOLS) -> Message:
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], end_id(tokenizer)]
    return TurnRenderer(tokenizer).read_reply(ids, tools)


def test_a_thought_is_read_from_its_middle_and_known_by_its_end():
    r1, message = make("r1"), FOUR | {"reasoning_content": "It is 2 + 2."}
    for tokenizer in (r1, make("qwen_base")):
        assert read(tokenizer, "It is 2 + 2.\n</think>\n\nFour.", None) == message
    assert read(r1, "Hm", None) == {"role": "assistant", "content": "", "reasoning_content": "Hm"}
    tail = r1.decode(TurnRenderer(r1).render_new([ASK, message], [ASK], None))
    assert tail == "<User>How many books?<Assistant><think>\n"


REPLIES = [
    # Of a form, what a model writes: its content, None if it is an error, and arguments of calls.
    *((name, text, None, []) for name, texts in TABLES["unreadable"].items() for text in texts),
    ("HERMES", "<tool_call>" + "[" * 10_000, None, []),
    *((name, *row[:2], row[2:]) for name, rows in TABLES["readable"].items() for row in rows),
    *((name, text, text, []) for name in NAMES for text in TABLES["content"]),
]


@pytest.mark.parametrize(("name", "text", "content", "arguments"), REPLIES)
def test_a_reply_is_content_and_calls_or_an_error(name, text, content, arguments):
    tokenizer = make(f"tool {name}")
    if content is None:
        with pytest.raises(ReplyError):
            read(tokenizer, text)
        return
    texts = [json.dumps(part) for part in arguments]
    calls = tuple(ToolCall("add", part, f"call{i:05d}") for i, part in enumerate(texts))
    assert find_form(tokenizer).read(text) == (content, calls)
    message = read(tokenizer, text)
    assert message.get("content", "") == content
    assert len(message.get("tool_calls", ())) == len(arguments)
    assert read(tokenizer, "<tool_call>", None)["content"] == "<tool_call>"  # there are no tools


@pytest.mark.parametrize("name", TABLES["unfit"])
def test_a_template_that_does_not_fit_episodes_is_refused(name):
    template, has_tools, reason, *edits = TABLES["unfit"][name]
    with pytest.raises(ValueError) as error:
        TurnRenderer(make(f"tool {template}", *edits)).check(TOOLS if has_tools else None)
    assert reason in str(error.value)


def test_calls_are_read_by_the_parser_of_the_tokenizer():
    tokenizer = make("tool HERMES", '"name": "{{', '"is": "{{')  # of a form that it does not write
    tokenizer.response_template = parser = TABLES["hermes_parser"]
    calls = [{"name": "add", "arguments": arguments} for arguments in ({"a": 3}, {})]
    text = "".join(f"\n<tool_call>\n{json.dumps(c)}\n</tool_call>" for c in calls)
    message = read(tokenizer, f"<think>\n3.\n</think>\nI add.{text}")
    assert (message["content"], message["reasoning_content"]) == ("I add.", "3.")
    assert [c["function"] for c in message["tool_calls"]] == calls
    for broken in ('<tool_call>{"name": "add"', '<tool_call>{"arguments": {}}</tool_call>'):
        with pytest.raises(ReplyError):
            read(tokenizer, broken)
    xml = make("tool HERMES_XML")
    fields = parser["fields"] | {"tool_calls": TABLES["xml_calls"]}
    xml.response_template = parser | {"fields": fields}
    TurnRenderer(xml).check(TOOLS)


@pytest.mark.parametrize("name", NAMES)
def test_texts_of_an_environment_spell_no_special_token(name):
    tokenizer = make(f"tool {name}")
    renderer, end = TurnRenderer(tokenizer), str(tokenizer.eos_token)
    specials = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    described = [{"type": "function", "function": {"name": "add", "description": end}}]

    def render_new(text):
        return renderer.render_new([ASK, call(3)], [result(text)], TOOLS)

    start = renderer.render_start([ASK], TOOLS)
    for plain, spelled in (
        (render_new("5"), render_new(f"{end}5")),
        (start, renderer.render_start([ASK], described)),
        (start, renderer.render_start([ASK | {"content": end}], TOOLS)),
    ):
        assert [i for i in spelled if i in specials] == [i for i in plain if i in specials]


def test_results_without_an_id_are_those_of_the_calls_in_order():
    renderer, messages = TurnRenderer(make("tool MISTRAL")), [ASK, call(3, 4)]
    bare = [{"role": "tool", "content": message["content"]} for message in TWO]
    ids = renderer.render_new(messages, TWO, TOOLS)
    assert renderer.render_new(messages, bare, TOOLS) == ids
    with pytest.raises(ValueError, match="calls"):
        renderer.render_new(messages, [result("5", 2)], TOOLS)
