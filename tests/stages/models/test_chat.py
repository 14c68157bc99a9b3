"""Prompts and completions by chat templates as models have them: a table of texts, read by eye, and
every way to encode a reply has to come to them.

A new template is a row of chat.yaml, a new kind of rows one of ENCODERS.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_tokenizers import (
    QWEN_3,
    TEMPLATES,
    ZEPHYR,
    make_sentencepiece,
    make_tokenizer,
    make_tool_tokenizer,
)
from ruamel.yaml import YAML
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from stages.auto import Facts
from stages.models import label_prompting, model_tokenizer, prompting
from stages.models.turn_rendering import TurnRenderer
from stages.records.preferences import RawLabelled, RawPreference
from stages.records.problems import THOUGHTS, Exchange, Problem, Turn
from stages.records.steps import RawSteps
from stages.rewards.answer_checker import solves_problem, states_an_answer
from stages.sources.data_summary import DataSummary

ASK, ANSWER = "What is 2 plus 2?", "The answer is 4."


TABLES = YAML(typ="safe").load(Path(__file__).with_name("chat.yaml"))


def fill(text: str) -> str:
    return text.replace("ASK", ASK).replace("ANSWER", ANSWER)


def make(name: str) -> PreTrainedTokenizerFast:
    """A kind of `make_tokenizer`, a template of chat.yaml, or a way and a template of many."""
    way, *words = name.split()
    if way == "tool":
        return make_tool_tokenizer(TEMPLATES[words[0]], *words[1:])
    if way == "sentencepiece":
        return make_sentencepiece(TEMPLATES[words[0]])
    tokenizer = make_tokenizer("qwen_base" if way in TABLES["templates"] else way)
    tokenizer.chat_template = TABLES["templates"].get(way, tokenizer.chat_template)
    model_tokenizer.pin_date(tokenizer)
    return tokenizer


def problem(question: str = ASK, solution: str | None = ANSWER, **more: Any) -> Problem:
    row = {"id": "a", "answer": None, "split": None, "line": 1}
    return Problem(question=question, solution=solution, **row | more)


def encode(*rows: Problem, tokenizer: Any, split: str = "train", **limits: Any) -> list[Any]:
    settings = {"template": "{question}", "readable": states_an_answer,
                "max_prompt_tokens": 200, "max_completion_tokens": 200}  # fmt: skip
    return [*prompting.encode_problems({split: rows}, tokenizer, **settings | limits)]


RAW = RawPreference(turns=(Turn("user", ASK),), plain_prompt=ASK, plain_lead="", chosen=ANSWER,
                    rejected=ANSWER, probability=0.75, line=1, file="mine")  # fmt: skip
LABELLED = RawLabelled(turns=RAW.turns, plain_prompt=ASK, plain_lead="", completion=ANSWER,
                       desirable=False, line=1, file="mine")  # fmt: skip
STEPS = RawSteps(line=1, question=ASK, steps=[ANSWER], labels=[1.0], num_completions=[8],
                 source="truth")  # fmt: skip


def encode_pair(tokenizer: Any, raw: RawPreference = RAW, limit: int = 200) -> Any:
    return label_prompting.encode_pairs([raw], tokenizer, max_tokens=limit)


def encode_labelled(tokenizer: Any, raw: RawLabelled = LABELLED, limit: int = 200) -> Any:
    return label_prompting.encode_labelled([raw], tokenizer, max_tokens=limit)


def encode_steps(tokenizer: Any, *raws: RawSteps, limit: int = 200, separator="\n\n") -> Any:
    return label_prompting.encode_steps(raws or [STEPS], tokenizer, template="{question}",
                                        separator=separator, max_tokens=limit)  # fmt: skip


def ids_of_problem(tokenizer: Any, **more: Any) -> Any:
    (row,) = encode(problem(**more), tokenizer=tokenizer)
    assert row.prompt.prompt_ids == row.demonstration.prompt_ids
    return row.demonstration.prompt_ids, row.demonstration.completion_ids


def ids_of_exchange(tokenizer: Any) -> Any:
    (row,) = prompting.encode_exchanges([Exchange(id="a", task="judge", message=ASK, reply=ANSWER)],
                                        tokenizer, 200)  # fmt: skip
    return row.prompt_ids, row.completion_ids


def ids_of_pair(tokenizer: Any) -> Any:
    ((_, pair),) = encode_pair(tokenizer).rows
    assert pair.chosen_ids == pair.rejected_ids
    return pair.prompt_ids, pair.chosen_ids


def ids_of_labelled(tokenizer: Any) -> Any:
    ((_, row),) = encode_labelled(tokenizer).rows
    return row.prompt_ids, row.completion_ids


def ids_of_steps(tokenizer: Any) -> Any:
    (row,) = encode_steps(tokenizer, separator="\u2028").rows
    return row.prompt_ids, [i for ids in row.step_ids for i in ids]


def ids_of_turn(tokenizer: Any) -> Any:
    user, reply = {"role": "user", "content": ASK}, {"role": "assistant", "content": ANSWER}
    renderer = TurnRenderer(tokenizer)
    return renderer.render_start([user], None), renderer.render_reply([user], reply, None)


ENCODERS = {
    "problem": ids_of_problem, "exchange": ids_of_exchange, "pair": ids_of_pair,
    "conversation": lambda words: ids_of_problem(words, turns=RAW.turns),
    "labelled": ids_of_labelled, "steps": ids_of_steps, "turn": ids_of_turn,
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES["chats"])
def test_every_encoding_of_a_reply_has_the_tokens_of_the_template(name):
    chat = TABLES["chats"][name]
    tokenizer, prompt = make(chat.get("tokenizer", name)), fill(chat["prompt"])
    whole = tokenize(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": ASK}, {"role": "assistant", "content": ANSWER}],
            tokenize=False,
        ),
        tokenizer,
    )
    for encoder, encode_ids in ENCODERS.items():
        prompt_ids, completion_ids = encode_ids(tokenizer)
        of_turn = chat.get("episode") if encoder == "turn" else None
        completion, end = fill(of_turn or chat["completion"]), completion_ids[-1]
        shown = tokenizer.decode(tokenize(prompt + completion, tokenizer))
        assert tokenizer.decode([*prompt_ids, *completion_ids]) == shown, encoder
        assert prompt_ids == tokenize(prompt, tokenizer), encoder
        assert end == model_tokenizer.end_id(tokenizer)
        assert completion.endswith(tokenizer.convert_ids_to_tokens(end))
        if chat.get("has_whole", True):  # the template renders the prompt and then the completion
            ids = [*prompt_ids, *completion_ids]
            assert ids == whole[: len(ids)], encoder
    assert model_tokenizer.end_ids(tokenizer) == {end, tokenizer.eos_token_id}
    assert prompting.tokenize_messages([ASK], tokenizer) == [prompt_ids]


def tokenize(text: str, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


PLAIN = make_tokenizer("plain")
TALK = problem("Why?", "It is.", turns=(Turn("user", ASK), Turn("assistant", "4"),
                                        Turn("user", "Why?")))  # fmt: skip


def test_without_a_template_texts_stand_as_they_are_behind_the_begin_token():
    assert [PLAIN.decode(ids) for ids in ids_of_problem(PLAIN)] == [f"<s>{ASK}", f"{ANSWER}</s>"]
    assert [PLAIN.decode(ids) for ids in ids_of_turn(PLAIN)] == [f"<s>{ASK}", f"{ANSWER}</s>"]
    (filled,) = prompting.render_prompts(["{question} {x}"], PLAIN, "Solve: {question}\n")
    assert filled == "<s>Solve: {question} {x}\n"
    raw = replace(RAW, plain_prompt="Human: 2?\n\nAssistant:", plain_lead=" ", rejected="5")
    ((same, pair),) = encode_pair(PLAIN, raw).rows
    assert same is raw
    assert (pair.prompt, pair.chosen, pair.rejected) == (
        "<s>Human: 2?\n\nAssistant:", f" {ANSWER}", " 5"
    )  # fmt: skip
    assert (pair.probability, pair.source) == (0.75, "human")
    for desirable in (True, False):
        ((_, row),) = encode_labelled(PLAIN, replace(LABELLED, desirable=desirable)).rows
        assert row.desirable is desirable


def test_a_conversation_teaches_each_turn_of_the_assistant_and_is_one_prompt():
    last, first = encode(TALK, tokenizer=PLAIN)
    assert last.prompt.prompt == (
        f"<s>\n\nHuman: {ASK}\n\nAssistant: 4\n\nHuman: Why?\n\nAssistant:"
    )
    assert (last.prompt.task, last.prompt.answer, last.prompt.question) == ("chat", None, "Why?")
    assert last.demonstration.prompt_ids == last.prompt.prompt_ids
    assert PLAIN.decode(last.demonstration.completion_ids) == " It is.</s>"
    assert (first.split, first.prompt) == (None, None)
    assert first.demonstration.prompt == f"<s>\n\nHuman: {ASK}\n\nAssistant:"
    assert PLAIN.decode(first.demonstration.completion_ids) == " 4</s>"
    gemma = make("gemma")
    shown = [row.demonstration.prompt for row in encode(TALK, tokenizer=gemma)]
    start = f"<bos><start_of_turn>user\n{ASK}<end_of_turn>\n<start_of_turn>model\n"
    assert shown == [
        f"{start}4<end_of_turn>\n<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n",
        start,
    ]


def test_demonstrations_are_of_solutions_in_the_train_split():
    for split, solution, number in (("train", ANSWER, 1), ("dev", ANSWER, 0), ("train", None, 0)):
        (row,) = encode(problem(solution=solution), split=split, tokenizer=PLAIN)
        assert (row.prompt is not None, row.demonstration is not None) == (True, number == 1)
    assert [row.demonstration for row in encode(TALK, split="dev", tokenizer=PLAIN)] == [None]


def read_turns(row: dict[str, Any]) -> dict[str, Any]:
    turns = row.get("turns")
    return row if turns is None else row | {"turns": tuple(Turn(r, fill(t)) for r, t in turns)}


CUT = {begin: {"solution": f"{begin}\nIt is", "turns": [["user", ASK]]} for begin in THOUGHTS}
PROBLEMS = {
    **TABLES["problems"],
    **{f"cut {begin}": row | {"reason": "truncated"} for begin, row in CUT.items()},
    **{f"whole {begin}": CUT[begin] | {"reason": None, "solution": f"{begin}\nIt is\n{end}\nSo."}
       for begin, end in THOUGHTS.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_that_no_model_can_learn_from_is_rejected_with_the_reason(name):
    row = read_turns({"tokenizer": "plain"} | PROBLEMS[name])
    tokenizer, reason = make(row.pop("tokenizer")), row.pop("reason")
    result, *_ = encode(problem(**row), tokenizer=tokenizer)
    if reason is None:
        assert result.reason is None
        assert result.demonstration is not None
    else:
        assert (result.prompt, result.demonstration) == (None, None)
        assert re.search(reason, result.reason), result.reason


LABELS = {
    "pair": (RAW, encode_pair), "labelled": (LABELLED, encode_labelled),
    "steps": (STEPS, encode_steps),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES["labels"])
def test_labels_that_no_model_can_read_are_rejected_with_the_reason(name):
    row = read_turns(dict(TABLES["labels"][name]))
    (raw, encoder), tokenizer = LABELS[row.pop("kind")], make(row.pop("tokenizer"))
    reason, raw = row.pop("reason"), replace(raw, **row)
    result = encoder(tokenizer, raw)
    assert len(result.rows) == (reason is None)
    if reason is not None:
        ((rejected, text),) = result.rejected
        assert rejected is raw
        assert reason in text


def test_limits_count_all_tokens_and_rows_that_are_too_long_are_dropped_whole():
    prompt_ids, completion_ids = ids_of_problem(PLAIN)
    limits = {"max_prompt_tokens": len(prompt_ids), "max_completion_tokens": len(completion_ids)}
    assert encode(problem(), tokenizer=PLAIN, **limits)[0].reason is None
    for name, limit in limits.items():
        (row,) = encode(problem(), tokenizer=PLAIN, **limits | {name: limit - 1})
        assert f"{limit} tokens, at most {limit - 1}" in row.reason
    exchange = Exchange(id="a", task="judge", message=ASK, reply="2")
    assert prompting.encode_exchanges([exchange], PLAIN, len(prompt_ids))
    with pytest.raises(ValueError, match=rf"found {len(prompt_ids)} in a 'judge'"):
        prompting.encode_exchanges([exchange], PLAIN, len(prompt_ids) - 1)
    assert prompting.encode_exchanges([], PLAIN, 0) == []
    length = len(prompt_ids) + len(completion_ids)
    for encoder, raw, needed in (
        (encode_pair, replace(RAW, rejected="4"), length),
        (encode_pair, replace(RAW, chosen="4"), length),  # the longer answer counts
        (encode_labelled, LABELLED, length),
        (encode_steps, STEPS, length + 1),  # and a step token
    ):
        assert len(encoder(PLAIN, raw, limit=needed).rows) == 1
        short = encoder(PLAIN, raw, limit=needed - 1)
        assert (short.rows, short.rejected) == ([], [])
        ((left_out, reason),) = short.over_long
        assert left_out is raw
        assert f"{needed} tokens" in reason


def test_an_earlier_turn_that_is_cut_in_its_thought_is_rejected_alone():
    turns = (TALK.turns[0], Turn("assistant", "<think>\nIt"), TALK.turns[2])
    rows = encode(replace(TALK, turns=turns), tokenizer=PLAIN)
    assert [(row.split, row.reason is None) for row in rows] == [("train", True), (None, False)]
    assert (
        encode(problem(**read_turns(CUT["<think>"])), split="dev", tokenizer=PLAIN)[0].reason
        is None
    )


def test_a_solution_with_a_thought_gets_no_empty_one():
    qwen = make_tool_tokenizer(QWEN_3)
    solution = f"<think>\n2 + 2\n</think>\n\n{ANSWER}"
    (row,) = encode(problem(solution=solution), tokenizer=qwen)
    assert row.demonstration.completion == solution


@pytest.mark.parametrize(("begin", "end"), THOUGHTS.items())
def test_a_thought_that_a_template_begins_is_ended_however_it_is_spelled(begin, end):
    assert prompting.close_thinking(f"<assistant>{begin}\n") == f"\n{end}\n\n"
    assert prompting.close_thinking("<assistant>") == ""


def test_facts_of_the_data_for_auto():
    facts = Facts(parameters=1, positions=64, has_chat_template=True)
    for tokenizer, thinks in ((make("r1"), True), (make("gemma"), False)):
        summary, lengths = DataSummary(), []
        for i, text in enumerate((ASK, "Why?", "Who is it that asks?")):
            row = problem(text, f"{text} #### 4", id=str(i), answer="4")
            (result,) = encode(row, tokenizer=tokenizer)
            summary.add_prompt("train", result.prompt)
            summary.add_demonstration(result.demonstration)
            lengths.append([len(result.prompt.prompt_ids),
                            len(result.demonstration.completion_ids)])  # fmt: skip
            assert solves_problem(result.prompt, result.demonstration.completion)
        measured = prompting.measure_data(summary, facts)
        assert (measured.prompt_tokens, measured.completion_tokens) == tuple(
            max(column) for column in zip(*lengths, strict=True)
        )
        assert (measured.thinks, measured.train_prompts, measured.demonstrations) == (thinks, 3, 3)


def test_pairs_and_solutions_of_a_prompt_share_an_id_and_solutions_are_numbered():
    ids = [encode_pair(PLAIN, raw).rows[0][1].id
           for raw in (RAW, replace(RAW, chosen="4"), replace(RAW, plain_prompt="Hi"))]  # fmt: skip
    assert ids[0] == ids[1] != ids[2]
    raws = STEPS, replace(STEPS, question="3?"), STEPS, replace(STEPS, id="mine")
    rows = encode_steps(PLAIN, *raws).rows
    assert rows[0].id == rows[2].id != rows[1].id
    assert [row.index for row in rows] == [0, 0, 1, 0]
    assert rows[3].id == "mine"


SEVERAL = replace(STEPS, steps=["2 + 2 = 4", "#### 4"], labels=[1.0, 0.0], num_completions=[8, 8],
                  true_labels=[True, False])  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "lead"),
    [("gemma", ""), ("llama_2", " "), ("gpt_oss", "<|channel|>final<|message|>"),
     ("r1", "\n</think>\n\n")],
)  # fmt: skip
def test_steps_are_tokenised_apart_behind_what_the_template_writes(kind, lead):
    tokenizer = make(kind)
    whole, part = encode_steps(tokenizer, SEVERAL, replace(SEVERAL, finished=False)).rows
    first = [lead, "2 + 2 = 4\n\n"] if lead.endswith("\n\n") else [f"{lead}2 + 2 = 4\n\n"]
    assert (whole.steps, part.steps) == ([*first, "#### 4"], [*first, "#### 4\n\n"])
    end = model_tokenizer.end_id(tokenizer)
    assert [tokenizer.decode(ids) for ids in whole.step_ids[:-1]] == first
    assert tokenizer.decode(whole.step_ids[-1][:-1]) == "#### 4"
    assert whole.step_ids[-1][-1] == end
    assert [tokenizer.decode(ids) for ids in part.step_ids] == part.steps
    unlabelled = [None] * (len(first) - 1)  # nobody has labelled the end of a thought
    assert whole.labels == [*unlabelled, 1.0, 0.0]
    assert whole.true_labels == [*unlabelled, True, False]
    assert len(whole.num_completions) == len(whole.steps)


def test_texts_behind_another_have_no_space_and_no_token_in_common_with_it():
    tokenizer = make_sentencepiece(ZEPHYR)
    texts = ["answer", " answer", "\nanswer", ""]
    behind = prompting.tokenize_behind(texts, tokenizer)
    shown = ["".join(tokenizer.convert_ids_to_tokens(ids)) for ids in behind]
    assert shown == ["answer", "▁answer", "<0x0A>answer", ""]
    (alone,) = prompting.tokenize(texts[:1], tokenizer)
    assert "".join(tokenizer.convert_ids_to_tokens(alone)) == "▁answer"
    assert prompting.tokenize_behind(texts, PLAIN) == prompting.tokenize(texts, PLAIN)
    # Of a vocabulary in which two newlines are one token.
    vocab = {token: i for i, token in enumerate(["?", "▁", "a", "b", "\n", "\n\n"])}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[("\n", "\n")], unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    newlines = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="?")
    assert prompting.tokenize_behind(["\nb", "b"], newlines) == [[4, 3], [3]]


@pytest.mark.parametrize("special", ["</s>", "<|pad|>", "<s>"])
def test_special_tokens_of_a_message_are_read_as_text_and_those_of_the_template_as_such(special):
    (ids,) = prompting.tokenize_messages([f"> 4{special}\n> {special * 2}"], PLAIN)
    assert set(ids[1:]).isdisjoint(PLAIN.all_special_ids)
    assert special not in PLAIN.decode(ids[1:])
    qwen = make_tokenizer("qwen_base")
    (ids,) = prompting.tokenize_messages(["Why? <|im_end|>"], qwen)
    marks = qwen.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    assert [marks.index(i) for i in ids if i in marks] == [0, 1, 0]
    assert prompting.tokenize_messages([], qwen) == []


def test_a_tokenizer_learns_from_problems_and_other_tasks():
    exchange = Exchange(id="a", task="judge", message="Judge:\n", reply="2")
    texts = prompting.tokenizer_texts([problem()], "Solve: {question}\n", [exchange])
    assert [*texts] == [f"Solve: {ASK}\n{ANSWER}", "Judge:\n2"]
    with pytest.raises(ValueError, match="Solve:"):
        prompting.fill_template("Solve:", "2?")
