import dataclasses

import pytest
from tiny_rollouts import make_pairs

from stages.loops.judged_rows import judged_rows

FIRST, SECOND = make_pairs(2)


def test_the_chosen_are_desirable_and_the_rejected_are_not():
    rows = judged_rows([FIRST, SECOND])
    assert [(row.id, row.completion_ids, row.desirable) for row in rows] == [
        (FIRST.id, FIRST.chosen_ids, True),
        (FIRST.id, FIRST.rejected_ids, False),
        (SECOND.id, SECOND.chosen_ids, True),
        (SECOND.id, SECOND.rejected_ids, False),
    ]
    assert rows[0].prompt_ids == FIRST.prompt_ids


def test_a_completion_of_two_pairs_is_one_row_and_that_of_another_problem_another():
    other_rejected = dataclasses.replace(FIRST, rejected_ids=[9, 1])
    other_problem = dataclasses.replace(FIRST, id="elsewhere")
    rows = judged_rows([FIRST, other_rejected, FIRST, other_problem])
    assert [(row.id, row.desirable) for row in rows] == [
        (FIRST.id, True),
        (FIRST.id, False),
        (FIRST.id, False),
        ("elsewhere", True),
        ("elsewhere", False),
    ]


def test_the_middle_of_a_ranking_is_both():
    below = dataclasses.replace(FIRST, chosen_ids=FIRST.rejected_ids, rejected_ids=[9, 1])
    rows = judged_rows([FIRST, below])
    middle = [row.desirable for row in rows if row.completion_ids == FIRST.rejected_ids]
    assert middle == [False, True]


def test_no_pair_gives_no_row():
    assert judged_rows([]) == []


def test_a_label_that_is_not_sure_is_refused():
    with pytest.raises(ValueError, match=r"found a label of 0\.8 from 'verifier' at problem 'q0'"):
        judged_rows(make_pairs(1, probability=0.8))
