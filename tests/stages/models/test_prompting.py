from collections.abc import Iterable
from dataclasses import replace

import pytest
from chat_tokenizers import (
    MISTRAL_3,
    QWEN_3,
    ZEPHYR,
    make_sentencepiece,
    make_tokenizer,
    make_tool_tokenizer,
)
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from stages.auto import Facts
from stages.models import model_tokenizer, prompting
from stages.records.problems import THOUGHTS, Demonstration, Exchange, Problem, Prompt, Turn
from stages.rewards.answer_checker import solves_problem, states_an_answer
from stages.sources.data_summary import DataSummary

TEMPLATE = "Solve: {question}\n"
WORDS = model_tokenizer.train_tokenizer(["Solve: What is 2 plus 2?\n2 + 2 = 4\n#### 4"] * 2, 800)


def problem(question: str = "What is 2 plus 2?", solution: str | None = "#### 4") -> Problem:
    return Problem(id="a", question=question, answer="4", solution=solution, split=None, line=1)


class Encoded:
    """Encoded problems by kind."""

    def __init__(self, rows: Iterable[prompting.EncodedProblem]) -> None:
        self.summary = DataSummary()
        self.prompts = dict[str, list[Prompt]]()
        self.demonstrations = list[Demonstration]()
        self.rejected = list[tuple[Problem, str]]()
        for row in rows:
            if row.reason is not None:
                self.rejected.append((row.problem, row.reason))
            if row.prompt is not None:
                assert row.split is not None
                self.prompts.setdefault(row.split, []).append(row.prompt)
                self.summary.add_prompt(row.split, row.prompt)
            if row.demonstration is not None:
                self.demonstrations.append(row.demonstration)
                self.summary.add_demonstration(row.demonstration)


def encode(
    *rows: Problem, split: str = "train", tokenizer: PreTrainedTokenizerBase = WORDS,
    template: str = TEMPLATE, **limits: int,
) -> Encoded:  # fmt: skip
    return Encoded(
        prompting.encode_problems(
            {split: rows},
            tokenizer,
            template=template,
            readable=states_an_answer,
            **({"max_prompt_tokens": 50, "max_completion_tokens": 50} | limits),
        )
    )


def test_a_template_is_filled_once_and_braces_are_text():
    (text,) = prompting.render_prompts(["{question} {x} \\frac{1}{2}"], WORDS, TEMPLATE)
    assert text == "Solve: {question} {x} \\frac{1}{2}\n"


def test_only_the_train_split_is_demonstrated():
    assert len(encode(problem()).demonstrations) == 1
    assert encode(problem(), split="dev").demonstrations == []
    assert len(encode(problem(), split="dev").prompts["dev"]) == 1
    assert encode(problem(solution=None)).demonstrations == []


def test_limits_count_the_tokens_that_are_written():
    encoded = encode(problem())
    num_prompt = len(encoded.prompts["train"][0].prompt_ids)
    num_completion = len(encoded.demonstrations[0].completion_ids)
    limits = {"max_prompt_tokens": num_prompt, "max_completion_tokens": num_completion}
    assert encode(problem(), **limits).rejected == []
    for name, limit in limits.items():
        (_, reason) = encode(problem(), **(limits | {name: limit - 1})).rejected[0]
        assert f"{limit} tokens, at most {limit - 1}" in reason


@pytest.mark.parametrize("special", ["<|pad|>", "<|end|>", "<|step|>"])
def test_text_that_spells_a_special_token_is_rejected(special):
    for row in (problem(f"Why? {special}"), problem(solution=f"{special}\n#### 4")):
        assert encode(row).rejected[0][1] == f"special token: the text contains {special!r}"


def test_an_unreadable_solution_is_told_apart():
    encoded = encode(problem(solution="So it is 4."))
    (_, reason), *_ = encoded.rejected
    assert reason == "unreadable solution: no final answer at the end of 'So it is 4.'"
    assert (encoded.prompts, encoded.demonstrations) == ({}, [])


def exchange(message: str = "Judge: 2 or 4?\nBetter:\n") -> Exchange:
    return Exchange(id="a", task="judge", message=message, reply="2")


def test_other_tasks_are_demonstrated_by_message_and_reply_as_they_are():
    (row,) = prompting.encode_exchanges([exchange()], WORDS, 50)
    assert (row.id, row.task, row.prompt, row.completion) == ("a", "judge", exchange().message, "2")
    assert WORDS.decode(row.prompt_ids) == row.prompt
    assert row.completion_ids == [*WORDS("2")["input_ids"], WORDS.eos_token_id]
    assert prompting.encode_exchanges([], WORDS, 0) == []


def test_a_message_that_is_too_long_is_refused_by_name():
    number = len(prompting.encode_exchanges([exchange()], WORDS, 50)[0].prompt_ids)
    assert prompting.encode_exchanges([exchange()], WORDS, number)
    with pytest.raises(
        ValueError, match=rf"at most {number - 1} tokens, found {number} in a 'judge'"
    ):
        prompting.encode_exchanges([exchange()], WORDS, number - 1)


def test_a_tokenizer_is_learned_from_other_tasks_too():
    texts = list(prompting.tokenizer_texts([problem()], TEMPLATE, [exchange()]))
    assert texts == ["Solve: What is 2 plus 2?\n#### 4", "Judge: 2 or 4?\nBetter:\n2"]


MESSAGES_WORDS = model_tokenizer.train_tokenizer(["Check result: 2 + 2 = 4\nCritique:\n"] * 2, 800)
CHAT = (
    "{% for message in messages %}<|step|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|step|>{% endif %}"
)


def test_a_message_is_the_prompt_itself():
    (ids,) = prompting.tokenize_messages(["Check result: 2 + 2 = 4\nCritique:\n"], MESSAGES_WORDS)
    assert MESSAGES_WORDS.decode(ids) == "Check result: 2 + 2 = 4\nCritique:\n"
    assert prompting.tokenize_messages([], MESSAGES_WORDS) == []


@pytest.mark.parametrize("special", ["<|end|>", "<|pad|>", "<|step|>"])
def test_no_special_token_that_somebody_wrote_is_read_as_one(special):
    (ids,) = prompting.tokenize_messages([f"> 4{special}\n> {special * 2}"], MESSAGES_WORDS)
    assert set(ids).isdisjoint(MESSAGES_WORDS.all_special_ids)
    assert special not in MESSAGES_WORDS.decode(ids)


def test_those_of_the_chat_template_are():
    chat = model_tokenizer.train_tokenizer(["Why?"] * 2, 800)
    chat.chat_template = CHAT
    (ids,) = prompting.tokenize_messages(["Why? <|end|>"], chat)
    step, end = chat.convert_tokens_to_ids(["<|step|>", "<|end|>"])
    assert prompting.tokenize_messages([], chat) == []
    assert ids[0] == ids[-1] == step
    assert [token for token in ids if token in (step, end)] == [step, end, step]


ROLES = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
)
TURNS = (Turn("user", "What is 2 plus 2?"), Turn("assistant", "4"), Turn("user", "Why?"))
TALK = Problem(
    id="c", question="Why?", answer=None, solution="It is.", split=None, line=1, turns=TURNS
)


def test_a_conversation_teaches_each_turn_of_the_assistant_and_is_one_prompt():
    encoded = encode(TALK)
    (prompt,) = encoded.prompts["train"]
    assert prompt.prompt == (
        "\n\nHuman: What is 2 plus 2?\n\nAssistant: 4\n\nHuman: Why?\n\nAssistant:"
    )
    assert (prompt.task, prompt.answer, prompt.question) == ("chat", None, "Why?")
    last, first = encoded.demonstrations
    assert (last.prompt_ids, last.completion) == (prompt.prompt_ids, " It is.")
    assert first.prompt == "\n\nHuman: What is 2 plus 2?\n\nAssistant:"
    assert first.completion == " 4"
    assert WORDS.decode(first.completion_ids) == " 4<|end|>"
    dev = encode(TALK, split="dev")
    assert (len(dev.prompts["dev"]), dev.demonstrations) == (1, [])


def test_with_a_chat_template_turns_are_rendered_by_it_and_what_it_refuses_is_rejected():
    chat = model_tokenizer.train_tokenizer(["What is 2 plus 2? Why? It is."] * 2, 800)
    chat.chat_template = ROLES
    system = replace(TALK, id="s", turns=(Turn("system", "Be brief."), *TURNS))
    encoded = encode(TALK, system, tokenizer=chat, max_prompt_tokens=99, max_completion_tokens=9)
    assert [row.prompt for row in encoded.demonstrations] == [
        "<user>What is 2 plus 2?<assistant>4<user>Why?<assistant>",
        "<user>What is 2 plus 2?<assistant>",
    ]
    assert encoded.demonstrations[0].completion == "It is."
    reasons = {item.id: reason for item, reason in encoded.rejected}
    assert set(reasons) == {"s", "s-turn-2"}
    assert reasons["s"] == "chat template: it refuses these turns: no system"


VICUNA = (
    "{% for m in messages %}{% if m.role == 'user' %}USER: {{ m.content | trim }} "
    "{% elif m.role == 'assistant' %}ASSISTANT: {{ m.content }}{{ eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
LAST_ALONE = "{{- 'Solve: ' + messages[-1].content + '\n' }}"  # as `stages.export` writes it


@pytest.mark.parametrize(
    ("template", "lost"), [(VICUNA, {"s": "system"}), (LAST_ALONE, {"s": "system", "c": "user"})]
)
def test_turns_of_which_a_template_renders_nothing_are_rejected(template, lost):
    chat = model_tokenizer.train_tokenizer(["What is 2 plus 2? Why? It is."] * 2, 800)
    chat.chat_template = template
    system = replace(TALK, id="s", turns=(Turn("system", "Be brief."), *TURNS))
    rows = encode(TALK, system, tokenizer=chat, max_prompt_tokens=99, max_completion_tokens=9)
    reasons = {item.id: reason for item, reason in rows.rejected if "-turn-" not in item.id}
    assert reasons.keys() == lost.keys()
    for name, role in lost.items():
        assert f"it renders nothing of a turn of the {role}" in reasons[name]
    assert len(rows.prompts.get("train", ())) == 2 - len(lost)


def test_a_demonstration_ends_the_thinking_that_the_template_has_begun():
    thinking = model_tokenizer.train_tokenizer(["2 + 2 = 4\n#### 4\n<think></think>"] * 2, 800)
    thinking.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}\n<think>\n"
    encoded = encode(
        problem(), tokenizer=thinking, max_prompt_tokens=200, max_completion_tokens=200
    )
    (prompt,), (shown,) = encoded.prompts["train"], encoded.demonstrations
    assert prompt.prompt.endswith("<think>")
    assert shown.completion == "\n</think>\n\n#### 4"
    facts = Facts(parameters=1, positions=64, has_chat_template=True)
    assert prompting.measure_data(encoded.summary, facts).thinks
    assert solves_problem(prompt, shown.completion)
    (told,) = prompting.encode_exchanges(
        [Exchange(id="b", task="judge", message="1 or 2?", reply="1")], thinking, 200
    )
    assert told.completion == "\n</think>\n\n1"
    assert thinking.decode(told.completion_ids[:-1]) == told.completion


@pytest.mark.parametrize("kind", ["gemma", "phi", "qwen_base"])
def test_demonstrations_end_as_the_template_ends_a_turn(kind):
    tokenizer = make_tokenizer(kind)
    row = problem("What is 2 plus 2?", "The answer is 4.")
    (shown,) = encode(row, tokenizer=tokenizer, template="{question}").demonstrations
    turns = [{"role": "user", "content": "What is 2 plus 2?"}]
    turns.append({"role": "assistant", "content": "The answer is 4."})
    whole = tokenizer.apply_chat_template(turns, tokenize=False)
    assert whole.startswith(tokenizer.decode([*shown.prompt_ids, *shown.completion_ids]))
    (mixed,) = prompting.encode_exchanges([exchange()], tokenizer, 99)
    assert mixed.completion_ids[-1] == shown.completion_ids[-1] != tokenizer.eos_token_id


@pytest.mark.parametrize(
    ("tokenizer", "lead"),
    [
        (make_tokenizer("gpt_oss"), "<|channel|>final<|message|>"),
        (make_tool_tokenizer(QWEN_3), "<think>\n\n</think>\n\n"),
        (make_tool_tokenizer(MISTRAL_3, "</s>"), " "),
        (make_sentencepiece(MISTRAL_3), " "),
        (make_sentencepiece(ZEPHYR), ""),
    ],
    ids=["gpt_oss", "qwen_3", "mistral_3", "mistral_3_sentencepiece", "zephyr_sentencepiece"],
)
def test_a_demonstration_has_the_tokens_of_the_template_that_renders_it_whole(tokenizer, lead):
    turns = [{"role": "user", "content": "What is 2 plus 2?"}]
    turns.append({"role": "assistant", "content": "The answer is 4."})
    whole = tokenizer.apply_chat_template(turns, tokenize=False)
    expected = tokenizer(whole, add_special_tokens=False)["input_ids"]
    row = problem("What is 2 plus 2?", "The answer is 4.")
    (shown,) = encode(
        row, tokenizer=tokenizer, template="{question}", max_prompt_tokens=99,
        max_completion_tokens=99,
    ).demonstrations  # fmt: skip
    assert shown.completion == f"{lead}The answer is 4."
    ids = [*shown.prompt_ids, *shown.completion_ids]
    assert ids == expected[: len(ids)]
    assert tokenizer.decode(expected[len(ids) :]).strip() == ""
    (mixed,) = prompting.encode_exchanges([exchange("2 or 4?")], tokenizer, 99)
    assert mixed.completion == lead + exchange().reply


def test_behind_another_text_sentencepiece_writes_no_space_of_its_own():
    tokenizer = make_sentencepiece(ZEPHYR)
    texts = ["answer", " answer", "\nanswer", ""]
    alone = prompting.tokenize(texts, tokenizer)
    behind = prompting.tokenize_behind(texts, tokenizer)
    shown = ["".join(tokenizer.convert_ids_to_tokens(ids)) for ids in behind]
    assert shown == ["answer", "▁answer", "<0x0A>answer", ""]
    assert [len(ids) > 0 for ids in alone] == [True, True, True, False]
    assert "".join(tokenizer.convert_ids_to_tokens(alone[0])) == "▁answer"
    assert prompting.tokenize_behind(texts, WORDS) == prompting.tokenize(texts, WORDS)


def test_a_solution_with_a_thought_of_its_own_gets_no_empty_one():
    tokenizer = make_tool_tokenizer(QWEN_3)
    solution = "<think>\n2 + 2\n</think>\n\nThe answer is 4."
    row = problem("What is 2 plus 2?", solution)
    (shown,) = encode(
        row, tokenizer=tokenizer, template="{question}", max_prompt_tokens=99,
        max_completion_tokens=99,
    ).demonstrations  # fmt: skip
    assert shown.completion == solution


def test_a_solution_may_have_a_thought_though_its_marks_are_special_tokens_and_a_question_not():
    r1 = make_tokenizer("r1")

    def encode_with_r1(row: Problem) -> Encoded:
        return encode(row, tokenizer=r1, template="{question}")

    (shown,) = encode_with_r1(problem("Why?", "#### 4")).demonstrations
    assert shown.completion == "\n</think>\n\n#### 4"
    (shown,) = encode_with_r1(problem("Why?", "#### 5</think>#### 4")).demonstrations
    assert r1.decode(shown.completion_ids) == "\n</think>\n\n#### 5</think>#### 4<end>"
    assert encode_with_r1(problem("Why </think>?", "#### 4")).demonstrations == []
    assert encode_with_r1(problem("Why?", "#### 4<end>")).demonstrations == []
    # an answer within a thought states nothing
    ((_, reason),) = encode_with_r1(problem("Why?", "<think>#### 4")).rejected
    assert "no final answer" in reason


@pytest.mark.parametrize(("begin", "end"), THOUGHTS.items())
def test_a_thought_that_a_template_begins_is_ended_however_it_is_spelled(begin, end):
    assert prompting.close_thinking(f"<assistant>{begin}\n") == f"\n{end}\n\n"
    assert prompting.close_thinking("<assistant>") == ""


@pytest.mark.parametrize("begin", THOUGHTS)
def test_a_reply_that_breaks_off_within_its_thought_is_rejected_as_truncated(begin):
    cut = replace(TALK, solution=f"{begin}\nIt is")
    whole = replace(TALK, solution=f"{begin}\nIt is\n{THOUGHTS[begin]}\n\nIt is.")
    plain = make_tokenizer("plain")
    (_, reason), *others = encode(cut, tokenizer=plain).rejected
    assert reason == (
        f"truncated reply: expected {THOUGHTS[begin]!r} behind the thought that {begin!r} begins"
    )
    assert others == encode(whole, tokenizer=plain, max_completion_tokens=99).rejected == []
    assert encode(cut, split="dev", tokenizer=plain).rejected == []


def test_an_earlier_turn_that_breaks_off_within_its_thought_is_rejected_alone():
    turns = (TURNS[0], Turn("assistant", "<think>\nIt"), TURNS[2])
    encoded = encode(replace(TALK, turns=turns), max_prompt_tokens=99)
    ((part, reason),) = encoded.rejected
    assert part.id != TALK.id
    assert reason.startswith("truncated reply: expected '</think>'")
    assert [row.completion for row in encoded.demonstrations] == [" It is."]
