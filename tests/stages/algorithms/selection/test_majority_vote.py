import itertools
from collections import Counter

import numpy as np
import pytest

from stages.algorithms.selection.majority_vote import majority_vote


def vote(sizes: list[int], right: list[bool], *, unreadable: int = 0, ns: list[int]) -> list[float]:
    return majority_vote(
        np.array(sizes, dtype=np.int64),
        np.array(right, dtype=np.bool_),
        num_unreadable=unreadable,
        ns=ns,
    ).tolist()


def enumerate_vote(sizes: list[int], right: list[bool], unreadable: int, n: int) -> float:
    """The definition: over all subsets, the share of the most frequent answers that is right."""
    pool = [a for a, size in enumerate(sizes) for _ in range(size)] + [None] * unreadable
    values = []
    for subset in itertools.combinations(pool, n):
        counts = Counter(answer for answer in subset if answer is not None)
        top = [a for a in counts if counts[a] == max(counts.values())]
        values.append(np.mean([right[a] for a in top]) if top else 0.0)
    return float(np.mean(values))


def test_the_hand_worked_pool_of_three():
    assert vote([2, 1], [True, False], ns=[1, 2, 3]) == pytest.approx([2 / 3, 2 / 3, 1.0])


def test_an_unreadable_sample_takes_a_draw_and_never_wins():
    # One right, two unreadable: with one draw a third of the time; with two draws whenever
    # the right one is drawn (2 of 3 pairs); the pair without any answer is wrong.
    assert vote([1], [True], unreadable=2, ns=[1, 2, 3]) == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_a_three_way_tie_is_won_by_each_in_turn():
    assert vote([1, 1, 1], [True, False, False], ns=[3]) == pytest.approx([1 / 3])


@pytest.mark.parametrize("unreadable", [0, 1, 3])
def test_it_equals_the_enumeration_of_all_subsets(unreadable):
    stream = np.random.default_rng(unreadable)
    pools = [stream.integers(1, 4, stream.integers(1, 5)).tolist() for _ in range(12)]
    for sizes in [*pools, [1] * 6, [2, 2, 2], [5, 1, 1]]:
        for num_right in (0, 1, min(2, len(sizes))):
            right = [i < num_right for i in range(len(sizes))]
            ns = list(range(1, sum(sizes) + unreadable + 1))
            expected = [enumerate_vote(sizes, right, unreadable, n) for n in ns]
            found = vote(sizes, right, unreadable=unreadable, ns=ns)
            assert found == pytest.approx(expected, abs=1e-12)


def test_order_of_answers_changes_nothing():
    sizes, right = [3, 5, 2, 4], [False, True, False, False]
    expected = vote(sizes, right, unreadable=2, ns=[1, 4, 9, 16])
    assert vote(sizes[::-1], right[::-1], unreadable=2, ns=[1, 4, 9, 16]) == pytest.approx(
        expected, abs=1e-14
    )


def test_no_answer_right_or_none_readable_is_zero():
    assert vote([3, 2], [False, False], ns=[1, 5]) == [0.0, 0.0]
    assert vote([], [], unreadable=4, ns=[1, 4]) == [0.0, 0.0]


def test_the_chances_of_all_answers_sum_to_one():
    sizes = [4, 3, 3, 2, 1]
    shares = [vote(sizes, [i == j for j in range(5)], ns=[1, 2, 3, 7, 13]) for i in range(5)]
    assert np.sum(shares, axis=0) == pytest.approx(np.ones(5), abs=1e-12)


def test_a_clear_majority_wins_more_often_with_more_draws():
    accuracies = vote([32, 16, 16], [True, False, False], ns=[1, 4, 16, 64])
    assert accuracies == sorted(accuracies)
    assert accuracies[0] == pytest.approx(0.5)
    assert accuracies[-1] == pytest.approx(1.0)
