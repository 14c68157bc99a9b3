import dataclasses
import math

import judged_rows
import pytest
from judged_rows import prompt

from stages.records import pools
from stages.records.pools import Completion, Score


def completion(name: str, index: int) -> Completion:
    return judged_rows.completion("", index, name)


def test_completions_are_grouped_by_prompt_in_the_order_of_their_index():
    rows = [completion("b", 1), completion("a", 0), completion("b", 0), completion("a", 1)]
    pairs = pools.join_prompts([prompt("b"), prompt("a")], rows)
    assert [(p.id, [row.index for row in pool]) for p, pool in pairs] == [
        ("b", [0, 1]),
        ("a", [0, 1]),
    ]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([("a", 0), ("b", 0), ("c", 0)], "problem 'c'"),
        ([("a", 0)], r"indices \[\] at problem 'b'"),
        ([("a", 0), ("a", 1), ("b", 0)], r"indices \[0\] at problem 'b' \(the first has 2\)"),
        ([("a", 0), ("b", 1)], r"indices \[1\] at problem 'b'"),
        ([("a", 0), ("b", 0), ("b", 0)], r"indices \[0, 0\] at problem 'b'"),
    ],
)
def test_a_pool_that_does_not_match_its_prompts_is_refused(rows, found):
    with pytest.raises(ValueError, match=f"{found}.*rerun `dvc repro`"):
        pools.join_prompts([prompt("a"), prompt("b")], [completion(*row) for row in rows])


def test_a_pool_without_prompts_is_refused():
    with pytest.raises(ValueError, match="no prompt at all"):
        pools.join_prompts([], [])


def score(name: str, index: int, value: float) -> Score:
    return Score(
        id=name,
        index=index,
        scores={"outcome": value},
        disagreement={},
        steps={"process": [0.5, value]},
    )


def test_scores_come_in_the_order_of_the_completions():
    problems = pools.join_prompts([prompt("a")], [completion("a", 0), completion("a", 1)])
    rows = [score("a", 1, 0.5), score("a", 0, -2.0)]
    assert pools.align_scores(problems, rows) == [[rows[1], rows[0]]]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([("a", 0, 1.0)], "no score at problem 'a', index 1"),
        ([("a", 0, 1.0), ("a", 1, 1.0), ("b", 0, 1.0)], "a score of no completion at problem 'b'"),
        (
            [("a", 0, 1.0), ("a", 1, math.nan)],
            "found nan by 'outcome' at problem 'a', index 1.*diverged",
        ),
    ],
)
def test_scores_that_do_not_match_the_pool_are_refused(rows, found):
    problems = pools.join_prompts([prompt("a")], [completion("a", 0), completion("a", 1)])
    with pytest.raises(ValueError, match=found):
        pools.align_scores(problems, [score(*row) for row in rows])


def test_a_step_that_is_no_number_is_refused_too():
    problems = pools.join_prompts([prompt("a")], [completion("a", 0)])
    row = Score(id="a", index=0, scores={}, disagreement={}, steps={"process": [0.5, math.inf]})
    with pytest.raises(ValueError, match="found inf by 'process' at problem 'a', index 0"):
        pools.align_scores(problems, [row])


def test_equal_completions_are_one_group_told_by_their_tokens():
    ids = [[5, 6], [7], [5, 6], [5], [7]]
    pool = [dataclasses.replace(completion("a", i), completion_ids=t) for i, t in enumerate(ids)]
    firsts, places = pools.deduplicate(pool)
    assert [row.index for row in firsts] == [0, 1, 3]
    assert places == [0, 1, 0, 2, 1]
