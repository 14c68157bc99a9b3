from dataclasses import replace

import pytest
from chat_tokenizers import make_tokenizer

from stages.models import label_prompting, model_tokenizer
from stages.records.preferences import RawLabelled, RawPreference
from stages.records.problems import Turn
from stages.records.steps import RawSteps

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
)
RAW = RawPreference(
    turns=(Turn("user", "Hi"), Turn("assistant", "Hello"), Turn("user", "2+2?")),
    plain_prompt="\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: 2+2?\n\nAssistant:",
    plain_lead=" ",
    chosen="It is 4",
    rejected="5",
    probability=0.75,
    line=1,
    file="mine.jsonl",
)


@pytest.fixture
def words():
    return model_tokenizer.train_tokenizer(["Hi 2+2? It is 4"], 700)


def encode(raw: RawPreference, words, max_tokens: int = 200) -> label_prompting.EncodedLabels:
    return label_prompting.encode_pairs([raw], words, max_tokens=max_tokens)


def test_without_a_template_the_prompt_is_the_plain_one_and_the_answers_follow_it(words):
    ((raw, pair),) = encode(RAW, words).rows
    assert raw is RAW
    assert (pair.prompt, pair.chosen, pair.rejected) == (RAW.plain_prompt, " It is 4", " 5")
    assert words.decode([*pair.prompt_ids, *pair.chosen_ids]) == (
        RAW.plain_prompt + " It is 4<|end|>"
    )
    assert pair.rejected_ids[-1] == words.eos_token_id
    assert (pair.probability, pair.source) == (0.75, "human")


def test_with_a_template_the_turns_are_rendered_by_it(words):
    words.chat_template = TEMPLATE
    ((_, pair),) = encode(RAW, words).rows
    assert pair.prompt == "<user>Hi<assistant>Hello<user>2+2?<assistant>"
    assert pair.chosen == "It is 4"


def test_pairs_of_one_prompt_share_an_id(words):
    (_, first), (_, second), (_, other) = label_prompting.encode_pairs(
        [RAW, replace(RAW, chosen="4", line=2), replace(RAW, plain_prompt="Hi", line=3)],
        words,
        max_tokens=200,
    ).rows
    assert first.id == second.id != other.id


def test_what_is_too_long_is_left_out_whole_and_told_apart(words):
    ((_, pair),) = encode(RAW, words).rows
    length = len(pair.prompt_ids) + len(pair.chosen_ids)
    assert len(pair.chosen_ids) > len(pair.rejected_ids)
    assert encode(RAW, words, length).rows == [(RAW, pair)]
    short = encode(RAW, words, length - 1)
    assert (short.rows, short.rejected) == ([], [])
    assert short.over_long[0][1] == (
        f"over-long pair: {length} tokens with its longer answer, at most {length - 1}"
    )


@pytest.mark.parametrize("field", ["chosen", "rejected"])
def test_preference_prompting_the_text_of_a_special_token_is_refused(words, field):
    result = encode(replace(RAW, **{field: "4<|step|>"}), words)
    assert [reason for _, reason in result.rejected] == [
        "special token: the text contains '<|step|>'"
    ]


def test_turns_that_the_template_refuses_are_left_out_with_its_reason(words):
    words.chat_template = TEMPLATE
    result = encode(replace(RAW, turns=(Turn("system", "x"), *RAW.turns)), words)
    assert result.rejected[0][1] == "chat template: it refuses these turns: no system"


STEP_PROMPTING_RAW = RawSteps(
    id=None,
    line=1,
    question="2+2?",
    steps=["2 + 2 = 4", "#### 4"],
    labels=[1.0, None],
    num_completions=[8, 8],
    true_labels=None,
    correct=None,
    finished=True,
    source="math_shepherd",
)


@pytest.fixture
def step_prompting_words():
    return model_tokenizer.train_tokenizer(["2+2? 2 + 2 = 4"], 700)


def step_prompting_encode(
    step_prompting_words, *raws: RawSteps, max_tokens: int = 100
) -> label_prompting.EncodedLabels:
    return label_prompting.encode_steps(
        raws, step_prompting_words, template="{question}\n", separator="\n\n", max_tokens=max_tokens
    )


def test_only_a_finished_solution_ends(step_prompting_words):
    whole, prefix = step_prompting_encode(
        step_prompting_words, STEP_PROMPTING_RAW, replace(STEP_PROMPTING_RAW, finished=False)
    ).rows
    assert whole.steps == ["2 + 2 = 4\n\n", "#### 4"]
    assert whole.step_ids[-1][-1] == step_prompting_words.eos_token_id
    assert prefix.steps == ["2 + 2 = 4\n\n", "#### 4\n\n"]
    assert step_prompting_words.eos_token_id not in prefix.step_ids[-1]
    assert "".join(prefix.steps) == step_prompting_words.decode(
        [i for ids in prefix.step_ids for i in ids]
    )


def test_solutions_of_one_question_share_an_id_and_are_numbered(step_prompting_words):
    rows = step_prompting_encode(
        step_prompting_words,
        STEP_PROMPTING_RAW,
        replace(STEP_PROMPTING_RAW, question="3?"),
        STEP_PROMPTING_RAW,
        replace(STEP_PROMPTING_RAW, id="own"),
    ).rows
    assert rows[0].id == rows[2].id != rows[1].id
    assert [row.index for row in rows] == [0, 0, 1, 0]
    assert rows[3].id == "own"


def test_step_tokens_count_and_nothing_is_cut(step_prompting_words):
    (row,) = step_prompting_encode(step_prompting_words, STEP_PROMPTING_RAW).rows
    length = len(row.prompt_ids) + sum(map(len, row.step_ids)) + 2
    assert step_prompting_encode(
        step_prompting_words, STEP_PROMPTING_RAW, max_tokens=length
    ).rows == [row]
    short = step_prompting_encode(step_prompting_words, STEP_PROMPTING_RAW, max_tokens=length - 1)
    assert (short.rows, short.rejected) == ([], [])
    assert short.over_long[0][1].startswith(f"over-long solution: {length} tokens")


@pytest.mark.parametrize("change", [{"question": "<|end|>"}, {"steps": ["4", "<|step|>"]}])
def test_step_prompting_the_text_of_a_special_token_is_refused(step_prompting_words, change):
    ((raw, reason),) = step_prompting_encode(
        step_prompting_words, replace(STEP_PROMPTING_RAW, **change)
    ).rejected
    assert (raw.line, reason.partition(":")[0]) == (1, "special token")


def test_answers_of_people_end_as_the_template_ends_a_turn():
    gemma = make_tokenizer("gemma")
    end = gemma.convert_tokens_to_ids("<end_of_turn>")
    ((_, pair),) = encode(RAW, gemma).rows
    assert pair.chosen_ids[-1] == pair.rejected_ids[-1] == end
    raw = RawLabelled(
        turns=RAW.turns, plain_prompt="", plain_lead="", completion="4", desirable=True, line=1,
        file="a",
    )  # fmt: skip
    ((_, row),) = label_prompting.encode_labelled([raw], gemma, max_tokens=99).rows
    assert row.completion_ids[-1] == end
    steps = RawSteps(
        line=1, question="2+2?", steps=["4"], labels=[1.0], num_completions=[0], source="truth"
    )
    (solution,) = label_prompting.encode_steps(
        [steps], gemma, template="{question}", separator="\n", max_tokens=99
    ).rows
    assert solution.step_ids[-1][-1] == end


def test_answers_of_people_may_have_thoughts_and_prompts_not():
    r1 = make_tokenizer("r1")
    ((_, pair),) = encode(replace(RAW, chosen="<think>2</think>4"), r1).rows
    assert r1.convert_tokens_to_ids("<think>") in pair.chosen_ids
    ((_, reason),) = encode(replace(RAW, turns=(Turn("user", "</think>?"),)), r1).rejected
    assert "special token" in reason


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("gemma", ["2 + 2 = 4\n\n"]),
        ("llama_2", [" 2 + 2 = 4\n\n"]),
        ("gpt_oss", ["<|channel|>final<|message|>2 + 2 = 4\n\n"]),
        ("r1", ["\n</think>\n\n", "2 + 2 = 4\n\n"]),
    ],
)
def test_solutions_begin_as_the_template_begins_a_reply(kind, first):
    tokenizer = make_tokenizer(kind)
    raw = replace(STEP_PROMPTING_RAW, labels=[1.0, 0.0], true_labels=[True, False])
    (row,) = step_prompting_encode(tokenizer, raw).rows
    assert row.steps == [*first, "#### 4"]
    assert [tokenizer.decode(ids) for ids in row.step_ids[:-1]] == first
    # nobody has labelled the end of a thought
    unlabelled = [None] * (len(first) - 1)
    assert row.labels == [*unlabelled, 1.0, 0.0]
    assert row.true_labels == [*unlabelled, True, False]
    assert len(row.num_completions) == len(row.steps)
