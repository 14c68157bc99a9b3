"""What groups could teach, step by step."""

import pytest

from stages.records.pools import Rollout
from stages.reports import group_signal


def rows(step, problem, rewards, right=None, ids=(1, 2, 3)):
    right = right or [True] * len(rewards)
    return [
        Rollout(step=step, id=problem, index=index, completion="", completion_ids=list(ids),
                finish_reason="stop", reward=reward, correct=verdict)
        for index, (reward, verdict) in enumerate(zip(rewards, right, strict=True))
    ]  # fmt: skip


def test_numbers_by_hand():
    first = [*rows(0, "a", [0.0, 2.0], [False, True]), *rows(0, "b", [5.0, 5.0], [False, False])]
    second = rows(1, "a", [1.0, 1.0, 4.0], ids=(1, 2, 3, 4) * 2)
    mixed = [first[0], *second, *first[1:]]
    one, two = group_signal.points(mixed)
    assert (one.step, one.num_groups, two.step, two.num_groups) == (0, 2, 1, 1)
    assert one.within_variance == (2.0 + 0.0) / 2
    assert one.flat_share == 0.5
    assert (one.all_right, one.all_wrong) == (0.0, 0.5)
    assert (two.within_variance, two.all_right) == (pytest.approx(3.0), 1.0)
    # 5 4-grams, of which 1234 comes twice
    assert two.repetition == pytest.approx(1 / 5)
    assert one.repetition == 0.0


def test_a_shift_of_a_group_changes_nothing_but_its_reward():
    rewards = [0.25, 0.5, 0.75, 0.5]
    (before,) = group_signal.points(rows(0, "a", rewards))
    (after,) = group_signal.points(rows(0, "a", [reward + 8 for reward in rewards]))
    assert before == after


def test_one_completion_is_no_group():
    (point,) = group_signal.points(rows(0, "a", [1.0]))
    assert (point.within_variance, point.flat_share) == (None, None)
    assert point.all_right == 1.0


def test_without_rollouts_there_is_nothing():
    assert group_signal.points([]) == []
