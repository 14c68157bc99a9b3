from dataclasses import replace

import pytest

from stages.records.problems import BadRow, Problem
from stages.rewards.answer_checker import read_gold
from stages.sources.quarantine import Screened, screen

GOOD = Problem(id="a", question="2+2?", answer="4", solution=None, split="train", line=1)


def sort(*rows: Problem | BadRow) -> Screened:
    return screen(rows, read_answer=read_gold, file_of=lambda problem: f"{problem.split}.jsonl")


def test_the_second_row_with_an_id_is_rejected():
    screened = sort(GOOD, replace(GOOD, line=2))
    assert screened.problems == [GOOD]
    assert screened.bad[0].reason == "duplicate id: 'a' is also the id of line 1"
    assert (screened.bad[0].file, screened.bad[0].line) == ("train.jsonl", 2)


@pytest.mark.parametrize("answer", ["nan", "four", "1,23", "4 or 5", "9" * 5000])
def test_an_answer_that_the_checker_cannot_read_is_rejected(answer):
    screened = sort(replace(GOOD, answer=answer))
    assert screened.problems == []
    assert screened.bad[0].reason.startswith("answer does not parse")


def test_an_answer_within_a_text_is_taken_out():
    assert sort(replace(GOOD, answer="half of 8\n#### 4")).problems == [GOOD]
    assert sort(replace(GOOD, answer=r"so \boxed{\frac{3}{4}}")).problems[0].answer == (
        r"\frac{3}{4}"
    )


def test_a_training_question_that_is_also_a_test_question_is_rejected_wherever_it_stands():
    test = replace(GOOD, id="t", question="  2+2? ", split="test")
    for rows in ((GOOD, test), (test, GOOD)):
        screened = sort(*rows)
        assert screened.problems == [test]
        assert screened.bad[0].reason.startswith("overlap")


def test_a_question_repeated_within_a_split_is_kept():
    assert len(sort(GOOD, replace(GOOD, id="b")).problems) == 2


def test_the_share_of_bad_rows_is_checked_over_all_rows():
    bad = BadRow(file="train.jsonl", line=9, reason="not JSON: x", content="{")
    screened = sort(GOOD, replace(GOOD, id="b"), replace(GOOD, id="c"), bad)
    screened.check_share(0.25)
    with pytest.raises(ValueError, match=r"1 of 4 rows .*1 not JSON.*24\.0%") as error:
        screened.check_share(0.24)
    assert "train.jsonl, line 9: not JSON: x" in str(error.value)
    assert "raise `data.max_bad_share`" in str(error.value)


def test_a_source_without_rows_is_refused():
    with pytest.raises(ValueError, match="no rows"):
        sort().check_share(0.5)
