"""Prompts and completions by chat templates as models have them: a table of texts, read by eye, and
every way to encode a reply has to come to them.

A new template is a row of chat.yaml, a new kind of rows one of ROWS.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_tokenizers import make
from ruamel.yaml import YAML
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from stages.auto import Facts
from stages.models import label_prompting, model_tokenizer, preparation, prompting
from stages.models.turn_rendering import TurnRenderer
from stages.records.preferences import RawLabelled, RawPreference
from stages.records.problems import THOUGHTS, Exchange, Problem, Turn
from stages.records.steps import RawSteps
from stages.rewards.answer_checker import states_an_answer
from stages.sources.data_summary import DataSummary

ASK, ANSWER = "What is 2 plus 2?", "The answer is 4."
TABLES = YAML(typ="safe").load(Path(__file__).with_name("chat.yaml"))
PLAIN = make("plain")
TURNS = (Turn("user", ASK),)
PROBLEM = Problem(id="a", question=ASK, solution=ANSWER, answer=None, split=None, line=1)
TALK = replace(PROBLEM, question="Why?", solution="It is.",
               turns=(*TURNS, Turn("assistant", "4"), Turn("user", "Why?")))  # fmt: skip
RAW: dict[str, Any] = {"turns": TURNS, "plain_prompt": ASK, "plain_lead": "", "line": 1,
                       "file": "mine"}  # fmt: skip
ROWS = {
    "problem": PROBLEM,
    "conversation": replace(PROBLEM, turns=TURNS),
    "exchange": Exchange(id="a", task="judge", message=ASK, reply=ANSWER),
    "pair": RawPreference(**RAW, chosen=ANSWER, rejected=ANSWER, probability=0.75),
    "labelled": RawLabelled(**RAW, completion=ANSWER, desirable=False),
    "steps": RawSteps(line=1, question=ASK, steps=[ANSWER], labels=[1.0], num_completions=[8],
                      source="truth"),
    "turn": ANSWER,
}  # fmt: skip


def encode(*rows: Problem, tokenizer: Any = PLAIN, split: str = "train", **limits: int) -> Any:
    settings = {"template": "{question}", "readable": states_an_answer,
                "max_prompt_tokens": 200, "max_completion_tokens": 200}  # fmt: skip
    return [*prompting.encode_problems({split: rows}, tokenizer, **settings | limits)]


def encode_label(row: Any, tokenizer: Any = PLAIN, limit: int = 200, separator="\n\n") -> Any:
    """Of a pair, a labelled completion or steps."""
    if isinstance(row, RawSteps):
        return label_prompting.encode_steps([row], tokenizer, template="{question}",
                                            separator=separator, max_tokens=limit)  # fmt: skip
    if isinstance(row, RawPreference):
        return label_prompting.encode_pairs([row], tokenizer, max_tokens=limit)
    return label_prompting.encode_labelled([row], tokenizer, max_tokens=limit)


def ids_of(kind: str, tokenizer: Any) -> tuple[list[int], list[int]]:
    """Prompt and completion of the row of this kind."""
    row: Any = ROWS[kind]
    match kind:
        case "problem" | "conversation":
            (result,) = encode(row, tokenizer=tokenizer)
            assert result.prompt.prompt_ids == result.demonstration.prompt_ids
            return result.demonstration.prompt_ids, result.demonstration.completion_ids
        case "exchange":
            (result,) = prompting.encode_exchanges([row], tokenizer, 200)
            return result.prompt_ids, result.completion_ids
        case "turn":
            user, reply = {"role": "user", "content": ASK}, {"role": "assistant", "content": row}
            renderer = TurnRenderer(tokenizer)
            return renderer.render_start([user], None), renderer.render_reply([user], reply, None)
        case "steps":
            (result,) = encode_label(row, tokenizer, separator="\u2028").rows
            return result.prompt_ids, [i for ids in result.step_ids for i in ids]
    ((_, result),) = encode_label(row, tokenizer).rows
    if kind == "pair":
        assert result.chosen_ids == result.rejected_ids
        return result.prompt_ids, result.chosen_ids
    return result.prompt_ids, result.completion_ids


def fill(text: str) -> str:
    return text.replace("ASK", ASK).replace("ANSWER", ANSWER)


def tokenize(text: str, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", TABLES["chats"])
def test_every_encoding_of_a_reply_has_the_tokens_of_the_template(name):
    chat = TABLES["chats"][name]
    tokenizer, prompt = make(chat.get("tokenizer", name)), fill(chat["prompt"])
    messages = [{"role": "user", "content": ASK}, {"role": "assistant", "content": ANSWER}]
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    for kind in ROWS:
        prompt_ids, completion_ids = ids_of(kind, tokenizer)
        of_turn = chat.get("episode") if kind == "turn" else None
        completion, end = fill(of_turn or chat["completion"]), completion_ids[-1]
        shown = tokenizer.decode(tokenize(prompt + completion, tokenizer))
        assert tokenizer.decode([*prompt_ids, *completion_ids]) == shown, kind
        assert prompt_ids == tokenize(prompt, tokenizer), kind
        assert end == model_tokenizer.end_id(tokenizer)
        assert completion.endswith(tokenizer.convert_ids_to_tokens(end))
        if chat.get("has_whole", True):  # the template renders the prompt and then the completion
            ids = [*prompt_ids, *completion_ids]
            assert ids == tokenize(whole, tokenizer)[: len(ids)], kind
    assert model_tokenizer.end_ids(tokenizer) == {end, tokenizer.eos_token_id}
    assert prompting.tokenize_messages([ASK], tokenizer) == [prompt_ids]


def test_without_a_template_texts_stand_as_they_are_after_the_begin_token():
    for kind in ("problem", "turn"):
        assert [PLAIN.decode(ids) for ids in ids_of(kind, PLAIN)] == [f"<s>{ASK}", f"{ANSWER}</s>"]
    filled = prompting.render_prompts(["{question} {x}"], PLAIN, "Solve: {question}\n")
    assert filled == ["<s>Solve: {question} {x}\n"]
    with pytest.raises(ValueError, match="Solve:"):
        prompting.fill_template("Solve:", "2?")
    raw = replace(ROWS["pair"], plain_prompt="Human: 2?\n\nAssistant:", plain_lead=" ",
                  rejected="5")  # fmt: skip
    ((same, pair),) = encode_label(raw).rows
    assert same is raw
    assert (pair.prompt, pair.chosen, pair.rejected, pair.probability) == (
        "<s>Human: 2?\n\nAssistant:", f" {ANSWER}", " 5", 0.75
    )  # fmt: skip
    for desirable in (True, False):
        ((_, row),) = encode_label(replace(ROWS["labelled"], desirable=desirable)).rows
        assert row.desirable is desirable


def test_a_conversation_teaches_each_turn_of_the_assistant_and_is_one_prompt():
    last, first = encode(TALK)
    assert last.prompt.prompt == (
        f"<s>\n\nHuman: {ASK}\n\nAssistant: 4\n\nHuman: Why?\n\nAssistant:"
    )
    assert (last.prompt.task, last.prompt.answer, last.prompt.question) == ("chat", None, "Why?")
    assert last.demonstration.prompt_ids == last.prompt.prompt_ids
    assert (first.split, first.prompt) == (None, None)
    assert first.demonstration.prompt == f"<s>\n\nHuman: {ASK}\n\nAssistant:"
    shown = [PLAIN.decode(row.demonstration.completion_ids) for row in (last, first)]
    assert shown == [" It is.</s>", " 4</s>"]
    cut = replace(TALK, turns=(*TURNS, Turn("assistant", "<think>\nIt"), TALK.turns[2]))
    rows = encode(cut)  # in its thought: that turn alone is rejected
    assert [(row.split, row.reason is None) for row in rows] == [("train", True), (None, False)]


def test_demonstrations_are_of_solutions_in_the_train_split():
    for split, row in (("train", replace(PROBLEM, solution=None)), ("dev", PROBLEM), ("dev", TALK)):
        (result,) = encode(row, split=split)
        assert (result.prompt is None, result.demonstration, result.reason) == (False, None, None)
    (result,) = encode(replace(PROBLEM, solution="<think>\nIt"), split="dev")
    assert result.reason is None


CUT = {begin: {"solution": f"{begin}\nIt is", "reason": "truncated"} for begin in THOUGHTS}
LEFT_OUT = {
    **TABLES["left out"],
    **{f"cut {begin}": row for begin, row in CUT.items()},
    **{f"whole {begin}": {"solution": f"{begin}\nIt is\n{end}\nSo.", "reason": None}
       for begin, end in THOUGHTS.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_row_that_no_model_can_learn_from_is_rejected_with_the_reason(name):
    changes = {"kind": "problem", "tokenizer": "plain"} | LEFT_OUT[name]
    kind, tokenizer, reason = (changes.pop(key) for key in ("kind", "tokenizer", "reason"))
    if "turns" in changes:
        changes["turns"] = tuple(Turn(role, fill(text)) for role, text in changes["turns"])
    row, tokenizer = replace(ROWS[kind], **changes), make(tokenizer)
    if kind == "problem":
        result, *_ = encode(row, tokenizer=tokenizer)
        shown, was_taken = result.reason, result.demonstration is not None
        assert was_taken == (result.prompt is not None)
    else:
        result = encode_label(row, tokenizer)
        shown, was_taken = next((text for _, text in result.rejected), None), bool(result.rows)
        assert all(rejected is row for rejected, _ in result.rejected)
    assert was_taken == (reason is None)
    assert shown is None if reason is None else reason in shown


def test_limits_count_all_tokens_and_rows_that_are_too_long_are_dropped_whole():
    prompt_ids, completion_ids = ids_of("problem", PLAIN)
    limits = {"max_prompt_tokens": len(prompt_ids), "max_completion_tokens": len(completion_ids)}
    assert encode(PROBLEM, **limits)[0].reason is None
    for name, limit in limits.items():
        (row,) = encode(PROBLEM, **limits | {name: limit - 1})
        assert f"{limit} tokens, at most {limit - 1}" in row.reason
    assert prompting.encode_exchanges([ROWS["exchange"]], PLAIN, len(prompt_ids))
    with pytest.raises(ValueError, match=rf"found {len(prompt_ids)} in a 'judge'"):
        prompting.encode_exchanges([ROWS["exchange"]], PLAIN, len(prompt_ids) - 1)
    assert prompting.encode_exchanges([], PLAIN, 0) == []
    length = len(prompt_ids) + len(completion_ids)
    for raw, needed in (
        (replace(ROWS["pair"], rejected="4"), length),
        (replace(ROWS["pair"], chosen="4"), length),  # the longer answer counts
        (ROWS["labelled"], length),
        (ROWS["steps"], length + 1),  # and a step token
    ):
        assert len(encode_label(raw, limit=needed).rows) == 1
        short = encode_label(raw, limit=needed - 1)
        assert (short.rows, short.rejected) == ([], [])
        ((left_out, reason),) = short.over_long
        assert left_out is raw
        assert f"{needed} tokens" in reason


@pytest.mark.parametrize("name", TABLES["thoughts"])
def test_prompt_and_reply_have_each_mark_of_a_thought_once(name):
    chat = TABLES["thoughts"][name]
    reply, written = fill(chat["reply"]), fill(chat["written"])
    tokenizer, separator = make(*chat["tokenizer"]), "\n"
    (row,) = encode(replace(PROBLEM, solution=reply), tokenizer=tokenizer)
    assert row.demonstration.completion == written
    ((_, pair),) = encode_label(replace(ROWS["pair"], rejected=reply), tokenizer).rows
    assert pair.rejected == written
    assert pair.chosen == fill(chat.get("no thought", "ANSWER"))
    steps = reply.split(separator)
    raw = replace(ROWS["steps"], steps=steps, labels=[float(i) for i in range(len(steps))],
                  num_completions=[8] * len(steps), true_labels=[True] * len(steps))  # fmt: skip
    (row,) = encode_label(raw, tokenizer, separator=separator).rows
    assert "".join(row.steps) == written
    assert len(row.labels) == len(row.true_labels) == len(row.num_completions) == len(row.steps)
    assert row.labels[-1] == len(steps) - 1


@pytest.mark.parametrize("name", TABLES["turns of thoughts"])
def test_a_turn_continues_the_thought_that_its_prompt_has_begun(name):
    chat = TABLES["turns of thoughts"][name]
    written = (
        "{% if m.reasoning_content %}{{ '\n<think>\n' + m.reasoning_content + '\n</think>' }}"
        "{% endif %}"
    )
    tokenizer, end = make("tool HERMES", written, chat["turn"]), "assistant\n' }}"
    template = tokenizer.chat_template.replace(end, end.replace("'", chat["prompt"] + "'"))
    tokenizer.chat_template, renderer = template, TurnRenderer(tokenizer)
    for reasoning, completion in zip(("", "2 + 2"), chat["completions"], strict=True):
        reply = {"role": "assistant", "content": ANSWER}
        reply |= {"reasoning_content": reasoning} if reasoning else {}
        ids = renderer.render_reply([{"role": "user", "content": ASK}], reply, None)
        assert tokenizer.decode(ids) == fill(completion) + "<|im_end|>"
        assert renderer.read_reply(ids, None) == reply


@pytest.mark.parametrize(("name", "thinks"), [("r1", True), ("gemma", False)])
def test_facts_of_the_data_for_auto(name, thinks):
    summary, lengths = DataSummary(), []
    for text in (ASK, "Why?", "Who is it that asks?"):
        (row,) = encode(replace(PROBLEM, question=text, solution=text), tokenizer=make(name))
        summary.add_prompt("train", row.prompt)
        summary.add_demonstration(row.demonstration)
        lengths.append((len(row.prompt.prompt_ids), len(row.demonstration.completion_ids)))
    facts = Facts(parameters=1, positions=64, has_chat_template=True)
    measured = preparation.measure_data(summary, facts)
    longest = tuple(max(column) for column in zip(*lengths, strict=True))
    assert (measured.prompt_tokens, measured.completion_tokens) == longest
    assert (measured.thinks, measured.train_prompts, measured.demonstrations) == (thinks, 3, 3)


def test_pairs_and_solutions_of_a_prompt_share_an_id_and_solutions_are_numbered():
    pair, steps = ROWS["pair"], ROWS["steps"]
    pairs = pair, replace(pair, chosen="4"), replace(pair, plain_prompt="Hi")
    ids = [encode_label(raw).rows[0][1].id for raw in pairs]
    assert ids[0] == ids[1] != ids[2]
    raws = [steps, replace(steps, question="3?"), steps, replace(steps, id="mine")]
    rows = label_prompting.encode_steps(raws, PLAIN, template="{question}", separator="\n",
                                        max_tokens=200).rows  # fmt: skip
    assert rows[0].id == rows[2].id != rows[1].id
    assert [row.index for row in rows] == [0, 0, 1, 0]
    assert rows[3].id == "mine"


@pytest.mark.parametrize(
    ("kind", "lead"),
    [("gemma", ""), ("llama_2", " "), ("gpt_oss", "<|channel|>final<|message|>"),
     ("r1", "\n</think>\n\n")],
)  # fmt: skip
def test_steps_are_tokenised_apart_after_what_the_template_writes(kind, lead):
    tokenizer = make(kind)
    raw = replace(ROWS["steps"], steps=["2 + 2 = 4", "#### 4"], labels=[1.0, 0.0],
                  num_completions=[8, 8], true_labels=[True, False])  # fmt: skip
    (whole,), (part,) = (encode_label(row, tokenizer).rows
                         for row in (raw, replace(raw, finished=False)))  # fmt: skip
    first = [lead, "2 + 2 = 4\n\n"] if lead.endswith("\n\n") else [f"{lead}2 + 2 = 4\n\n"]
    assert (whole.steps, part.steps) == ([*first, "#### 4"], [*first, "#### 4\n\n"])
    assert [tokenizer.decode(ids) for ids in part.step_ids] == part.steps
    shown = [tokenizer.decode(ids) for ids in (*whole.step_ids[:-1], whole.step_ids[-1][:-1])]
    assert shown == whole.steps
    assert whole.step_ids[-1][-1] == model_tokenizer.end_id(tokenizer)
    unlabelled = [None] * (len(first) - 1)  # nobody has labelled the end of a thought
    assert whole.labels == [*unlabelled, 1.0, 0.0]
    assert whole.true_labels == [*unlabelled, True, False]
    assert len(whole.num_completions) == len(whole.steps)


def test_texts_after_another_have_no_space_and_no_token_in_common_with_it():
    tokenizer, texts = make("sentencepiece ZEPHYR"), ["answer", " answer", "\nanswer", ""]
    after = prompting.tokenize_continuation(texts, tokenizer)
    shown = ["".join(tokenizer.convert_ids_to_tokens(ids)) for ids in after]
    assert shown == ["answer", "▁answer", "<0x0A>answer", ""]
    (alone,) = prompting.tokenize(texts[:1], tokenizer)
    assert "".join(tokenizer.convert_ids_to_tokens(alone)) == "▁answer"
    assert prompting.tokenize_continuation(texts, PLAIN) == prompting.tokenize(texts, PLAIN)
    # Of a vocabulary in which two newlines are one token.
    vocab = {token: i for i, token in enumerate(["?", "▁", "a", "b", "\n", "\n\n"])}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[("\n", "\n")], unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    newlines = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="?")
    assert prompting.tokenize_continuation(["\nb", "b"], newlines) == [[4, 3], [3]]


@pytest.mark.parametrize("special", ["</s>", "<|pad|>", "<s>"])
def test_special_tokens_of_a_message_are_read_as_text_and_those_of_the_template_as_such(special):
    (ids,) = prompting.tokenize_messages([f"> 4{special}\n> {special * 2}"], PLAIN)
    assert set(ids[1:]).isdisjoint(PLAIN.all_special_ids)
    assert special not in PLAIN.decode(ids[1:])
    qwen = make("qwen_base")
    (ids,) = prompting.tokenize_messages(["Why? <|im_end|>"], qwen)
    marks = qwen.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    assert [marks.index(i) for i in ids if i in marks] == [0, 1, 0]
    assert prompting.tokenize_messages([], qwen) == []
