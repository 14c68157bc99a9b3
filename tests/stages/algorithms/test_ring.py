import pytest

from stages.algorithms import ring


def test_each_member_meets_the_one_before_and_the_one_after_it():
    assert ring.pairs([0, 0, 0, 0]) == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert ring.pairs([0, 0, 0]) == [(0, 1), (1, 2), (2, 0)]


def test_two_members_are_one_pair():
    assert ring.pairs([5, 5]) == [(0, 1)]


def test_groups_may_stand_mixed_and_differ_in_size():
    assert ring.pairs([1, 0, 1, 0, 1]) == [(0, 2), (2, 4), (4, 0), (1, 3)]
    assert ring.pairs([]) == []


def test_a_group_of_one_is_refused_by_name():
    with pytest.raises(ValueError, match="found 2 alone"):
        ring.pairs([0, 0, 1])


def test_means_by_hand():
    found = ring.means(3, [(0, 1), (1, 2), (2, 0)], [(0.8, 0.2), (0.6, 0.4), (0.3, 0.7)])
    assert found == pytest.approx([0.75, 0.4, 0.35])
    assert ring.means(2, [(0, 1)], [(0.9, 0.1)]) == [0.9, 0.1]
