from dataclasses import replace

import pytest

from stages.models import step_prompting, tokenizer
from stages.records.steps import RawSteps

RAW = RawSteps(
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
def words():
    return tokenizer.train(["2+2? 2 + 2 = 4"], 700)


def encode(words, *raws: RawSteps, max_tokens: int = 100) -> step_prompting.Encoded:
    return step_prompting.encode(
        raws, words, template="{question}\n", separator="\n\n", max_tokens=max_tokens
    )


def test_only_a_finished_solution_ends(words):
    whole, prefix = encode(words, RAW, replace(RAW, finished=False)).rows
    assert whole.steps == ["2 + 2 = 4\n\n", "#### 4"]
    assert whole.step_ids[-1][-1] == words.eos_token_id
    assert prefix.steps == ["2 + 2 = 4\n\n", "#### 4\n\n"]
    assert words.eos_token_id not in prefix.step_ids[-1]
    assert "".join(prefix.steps) == words.decode([i for ids in prefix.step_ids for i in ids])


def test_solutions_of_one_question_share_an_id_and_are_numbered(words):
    rows = encode(words, RAW, replace(RAW, question="3?"), RAW, replace(RAW, id="own")).rows
    assert rows[0].id == rows[2].id != rows[1].id
    assert [row.index for row in rows] == [0, 0, 1, 0]
    assert rows[3].id == "own"


def test_step_tokens_count_and_nothing_is_cut(words):
    (row,) = encode(words, RAW).rows
    length = len(row.prompt_ids) + sum(map(len, row.step_ids)) + 2
    assert encode(words, RAW, max_tokens=length).rows == [row]
    short = encode(words, RAW, max_tokens=length - 1)
    assert (short.rows, short.rejected) == ([], [])
    assert short.over_long[0][1].startswith(f"over-long solution: {length} tokens")


@pytest.mark.parametrize("change", [{"question": "<|end|>"}, {"steps": ["4", "<|step|>"]}])
def test_the_text_of_a_special_token_is_refused(words, change):
    ((raw, reason),) = encode(words, replace(RAW, **change)).rejected
    assert (raw.line, reason.partition(":")[0]) == (1, "special token")
