import itertools

import pytest

from stages.rewards.probes import step_edits

STEPS = [[1, 2, 3], [4], [5, 6]]


def test_by_hand():
    assert step_edits.inflated(STEPS) == [[1, 2, 3], [1, 2, 3], [4], [5, 6]]
    assert step_edits.filler(STEPS, [9]) == [[1, 2, 3], [4], [9], [5, 6]]
    assert step_edits.split(STEPS) == [[1], [2, 3], [4], [5, 6]]
    assert step_edits.merged(STEPS) == [[1, 2, 3, 4], [5, 6]]


@pytest.mark.parametrize("edit", [step_edits.split, step_edits.merged])
def test_the_tokens_stay_the_same_and_no_step_is_empty(edit):
    edited = edit(STEPS)
    assert [*itertools.chain(*edited)] == [*itertools.chain(*STEPS)]
    assert all(edited)
    assert edited != STEPS


def test_where_there_is_nothing_to_edit_there_is_none():
    assert step_edits.inflated([[1, 2]]) is None
    assert step_edits.filler([[1, 2]], [9]) is None
    assert step_edits.split([[1], [2, 3]]) is None
    assert step_edits.merged([[1], [2]]) is None
