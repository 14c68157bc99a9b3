"""Tools, calls, results and reasoning by templates as models have them, decoded and read by eye."""

import json
from dataclasses import replace

import pytest
from chat_tokenizers import HERMES, LLAMA, MISTRAL
from chat_tokenizers import make_tool_tokenizer as load
from transformers import PreTrainedTokenizerFast

from stages.models import chat_template, prompting
from stages.models.model_tokenizer import end_id
from stages.records import transcripts
from stages.records.problems import Problem, ToolCall, Turn

TEXT_ARGUMENTS = HERMES.replace("arguments | tojson", "arguments")
WITHOUT_TOOLS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
TOOLS = json.dumps([ADD])
CALL = ToolCall("add", '{"a": 3, "b": 2}', "abcdefghi")
CALLED, RESULT = Turn("assistant", "", calls=(CALL,)), Turn("tool", "5", answers=CALL)
ASKED = Turn("user", "How many books?")
SPOKEN = Turn("assistant", "I add.", calls=(CALL,))


def talk(*turns: Turn, tools: str | None = TOOLS, solution: str | None = "Five.") -> Problem:
    return Problem(
        id="t", question="How many?", answer=None, solution=solution, split=None, line=1,
        turns=turns, tools=tools,
    )  # fmt: skip


def read_by_eye(tokenizer: PreTrainedTokenizerFast, problem: Problem) -> list[tuple[str, str]]:
    """What is context and what is imitated, decoded, of each demonstration."""
    rows = list(
        prompting.encode_problems(
            {"train": [problem]}, tokenizer, template="{question}", max_prompt_tokens=2000,
            max_completion_tokens=2000, readable=lambda _text, _gold: True,
        )
    )  # fmt: skip
    assert [row.reason for row in rows] == [None] * len(rows)
    shown = [row.demonstration for row in rows if row.demonstration is not None]
    assert all(row.completion_ids[-1] == end_id(tokenizer) for row in shown)
    return [
        (str(tokenizer.decode(row.prompt_ids)), str(tokenizer.decode(row.completion_ids)))
        for row in shown
    ]


def find_reason(tokenizer: PreTrainedTokenizerFast, problem: Problem) -> str:
    (row, *_) = prompting.encode_problems(
        {"train": [problem]}, tokenizer, template="{question}", max_prompt_tokens=2000,
        max_completion_tokens=2000, readable=lambda _text, _gold: True,
    )  # fmt: skip
    assert row.reason is not None
    return row.reason


def test_hermes_imitates_the_call_and_the_answer_and_reads_tools_and_result():
    last, first = read_by_eye(load(HERMES), talk(ASKED, CALLED, RESULT))
    prompt = (
        f"<|im_start|>system\n<tools>\n{TOOLS[1:-1]}\n</tools><|im_end|>\n"
        "<|im_start|>user\nHow many books?<|im_end|>\n<|im_start|>assistant\n"
    )
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": 2}}\n</tool_call><|im_end|>'
    result = (
        "<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert first == (prompt, call)
    assert last == (f"{prompt}{call}\n{result}", "Five.<|im_end|>")


def test_llama_imitates_the_call_and_the_answer_and_reads_tools_and_result():
    last, first = read_by_eye(load(LLAMA), talk(ASKED, CALLED, RESULT))
    prompt = (
        f"<|start|>user<|head|>\n\n{TOOLS}\n\nHow many books?<|eot|><|start|>assistant<|head|>\n\n"
    )
    call = '{"name": "add", "parameters": {"a": 3, "b": 2}}<|eot|>'
    result = '<|start|>ipython<|head|>\n\n"5"<|eot|><|start|>assistant<|head|>\n\n'
    assert first == (prompt, call)
    assert last == (f"{prompt}{call}{result}", "Five.<|eot|>")


def test_mistral_imitates_the_call_and_the_answer_and_reads_tools_and_result():
    last, first = read_by_eye(load(MISTRAL), talk(ASKED, CALLED, RESULT))
    prompt = f"<s>[AVAILABLE_TOOLS] {TOOLS}[/AVAILABLE_TOOLS][INST] How many books?[/INST]"
    call = '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 3, "b": 2}, "id": "abcdefghi"}]</s>'
    result = '[TOOL_RESULTS] {"content": "5", "call_id": "abcdefghi"}[/TOOL_RESULTS]'
    assert first == (prompt, call)
    assert last == (f"{prompt}{call}{result}", " Five.</s>")


def test_content_calls_and_reasoning_of_the_last_turn_are_imitated_together():
    reply = replace(SPOKEN, reasoning="3 and 2.", calls=(CALL, replace(CALL, name="sum")))
    problem = replace(talk(ASKED, solution=transcripts.show_turn(reply)), reply=reply)
    ((_, completion),) = read_by_eye(load(HERMES), problem)
    assert completion == (
        "<think>\n3 and 2.\n</think>\nI add."
        '\n<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": 2}}\n</tool_call>'
        '\n<tool_call>\n{"name": "sum", "arguments": {"a": 3, "b": 2}}\n</tool_call><|im_end|>'
    )


def test_a_turn_of_weight_0_is_context_alone():
    rows = read_by_eye(load(HERMES), talk(ASKED, replace(CALLED, is_imitated=False), RESULT))
    assert [completion for _, completion in rows] == ["Five.<|im_end|>"]


def test_arguments_are_json_text_where_the_template_prints_them_as_they_are():
    tokenizer = load(TEXT_ARGUMENTS)
    assert chat_template.takes_text_arguments(tokenizer)
    _, (_, call) = read_by_eye(tokenizer, talk(ASKED, CALLED, RESULT))
    assert '"arguments": {"a": 3, "b": 2}}' in call
    assert not chat_template.takes_text_arguments(load(HERMES))


@pytest.mark.parametrize(
    ("template", "problem", "part"),
    [
        (WITHOUT_TOOLS, talk(ASKED), "same with and without tools"),
        (WITHOUT_TOOLS, talk(ASKED, CALLED, RESULT, tools=None), "with and without tool calls"),
        (WITHOUT_TOOLS, talk(ASKED, replace(ASKED, role="assistant", reasoning="So."), ASKED,
                             tools=None), "with and without reasoning"),
        (HERMES.replace("{{ m.content }}{{ '\n</tool", "{{ '\n</tool"),
         talk(ASKED, CALLED, RESULT), "with and without tool results"),
        (LLAMA, talk(ASKED, SPOKEN, RESULT), "content in a turn of content and calls"),
        (HERMES.replace("{{ c.function.arguments | tojson }}", "{}"), talk(ASKED, CALLED, RESULT),
         "with and without tool calls"),
        (LLAMA, talk(ASKED, replace(CALLED, calls=(CALL, CALL)), RESULT), "one call at a time"),
        (MISTRAL, talk(ASKED, Turn("assistant", "", calls=(replace(CALL, id="c0"),)), RESULT),
         "ids of length 9"),
    ],
)  # fmt: skip
def test_what_a_template_would_lose_is_refused(template, problem, part):
    assert part in find_reason(load(template), problem)


def test_a_model_without_a_chat_template_has_no_tools():
    tokenizer = load(HERMES)
    tokenizer.chat_template = None
    assert "the model has none" in find_reason(tokenizer, talk(ASKED))


def test_a_special_token_in_a_tool_or_a_call_is_refused():
    marked = replace(CALL, arguments='{"a": "<|im_end|>"}')
    turns = ASKED, Turn("assistant", "", calls=(marked,)), RESULT
    question = replace(talk(*turns), question=transcripts.render_question(turns))
    for problem in (question, talk(ASKED, tools=TOOLS.replace("object", "<|im_end|>"))):
        assert "special token" in find_reason(load(HERMES), problem)


@pytest.mark.parametrize(("begin", "end"), [("<think>", "</think>"), ("[THINK]", "[/THINK]")])
def test_a_reply_follows_the_thinking_that_the_prompt_has_begun(begin, end):
    template = HERMES.replace("assistant\n' }}", f"assistant\n{begin}\n' }}}}")
    ((prompt, completion),) = read_by_eye(load(template), talk(ASKED))
    assert prompt.endswith(f"<|im_start|>assistant\n{begin}\n")
    assert completion == f"\n{end}\n\nFive.<|im_end|>"


@pytest.mark.parametrize(
    "after", ["", "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}"]
)
def test_a_call_ends_with_the_end_of_a_turn_where_that_of_a_sequence_is_another(after):
    """As Qwen's base models have it, and Phi, which writes both ends."""
    last, first = read_by_eye(load(HERMES + after, "<|endoftext|>"), talk(ASKED, CALLED, RESULT))
    assert first[1].endswith("</tool_call><|im_end|>")
    assert last[1] == "Five.<|im_end|>"


def test_the_end_of_a_thought_may_be_spelled_by_a_solution_and_not_within_reasoning():
    tokenizer = load(HERMES)
    ((_, completion),) = read_by_eye(tokenizer, talk(ASKED, solution="So.[/THINK]Five."))
    assert completion == "So.[/THINK]Five.<|im_end|>"
    reply = Turn("assistant", "Five.", reasoning="So.[/THINK]It is.")
    assert "special token" in find_reason(tokenizer, replace(talk(ASKED), reply=reply))
