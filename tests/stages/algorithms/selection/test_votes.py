import itertools
from collections import Counter

import numpy as np
import pytest

from stages.algorithms.selection import votes
from stages.algorithms.selection.votes import UNREADABLE, majority_vote, weighted_vote


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
            actual = vote(sizes, right, unreadable=unreadable, ns=ns)
            assert actual == pytest.approx(expected, abs=1e-12)


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


def test_the_largest_pool_is_counted_and_a_larger_one_refused():
    assert vote([750, 250], [True, False], ns=[1, 1000]) == pytest.approx([0.75, 1.0], abs=1e-12)
    assert vote([500, 500], [True, False], ns=[7, 250]) == pytest.approx([0.5] * 2, abs=1e-12)
    with pytest.raises(ValueError, match="at most 1000 samples, found 1001"):
        vote([750, 251], [True, False], ns=[1])


def every(num_samples: int, n: int) -> np.ndarray:
    return np.array(list(itertools.combinations(range(num_samples), n)))


def weighted_vote_vote(
    answers: list[int], weights: list[float], right: list[bool], chosen: np.ndarray
) -> float:
    return weighted_vote(
        np.array(answers, dtype=np.int64),
        np.array(weights, dtype=np.float64),
        np.array(right, dtype=np.bool_),
        subsets=chosen,
    )


def weighted_vote_enumerate_vote(
    answers: list[int], weights: list[float], right: list[bool], n: int
) -> float:
    """The definition, one subset after the other, in fractions of a thousandth."""
    values = []
    for subset in itertools.combinations(range(len(answers)), n):
        sums: dict[int, int] = {}
        for i in subset:
            if answers[i] != UNREADABLE:
                sums[answers[i]] = sums.get(answers[i], 0) + round(1000 * weights[i])
        top = [a for a, total in sums.items() if total == max(sums.values())]
        values.append(np.mean([right[a] for a in top]) if top else 0.0)
    return float(np.mean(values))


def test_the_hand_worked_three():
    assert weighted_vote_vote([0, 0, 1], [0.2, 0.3, 0.6], [True, False], every(3, 3)) == 0.0
    # of the three pairs the right answer wins the one without the other answer
    assert weighted_vote_vote(
        [0, 0, 1], [0.2, 0.3, 0.6], [True, False], every(3, 2)
    ) == pytest.approx(1 / 3)


def test_weighted_vote_it_equals_the_enumeration_of_all_subsets():
    stream = np.random.default_rng(0)
    for _ in range(40):
        num_samples = int(stream.integers(1, 8))
        answers = stream.integers(-1, 3, num_samples).tolist()
        weights = (stream.integers(0, 4, num_samples) / 1000 * 100).tolist()  # ties, and zeros
        right = [True, False, bool(stream.integers(2))]
        for n in range(1, num_samples + 1):
            result = weighted_vote_vote(answers, weights, right, every(num_samples, n))
            assert result == pytest.approx(
                weighted_vote_enumerate_vote(answers, weights, right, n), abs=1e-12
            )


def test_with_equal_weights_it_is_the_majority():
    answers = [0, 0, 0, 1, 1, 2, UNREADABLE]
    for n in range(1, 8):
        (expected,) = majority_vote(
            np.array([3, 2, 1]), np.array([True, False, False]), num_unreadable=1, ns=[n]
        )
        actual = weighted_vote_vote(answers, [0.7] * 7, [True, False, False], every(7, n))
        assert actual == pytest.approx(float(expected), abs=1e-12)


def test_nobody_with_an_answer_is_wrong():
    assert weighted_vote_vote([UNREADABLE] * 3, [1.0] * 3, [True], every(3, 2)) == 0.0
    assert weighted_vote_vote([UNREADABLE] * 3, [1.0] * 3, [], every(3, 2)) == 0.0


def test_scaling_the_weights_changes_nothing():
    stream = np.random.default_rng(1)
    answers, weights = stream.integers(0, 3, 9), stream.random(9)
    right = np.array([True, False, False])
    chosen = every(9, 4)
    expected = weighted_vote(answers, weights, right, subsets=chosen)
    assert weighted_vote(answers, 3.7 * weights, right, subsets=chosen) == expected


def test_a_negative_weight_is_refused():
    with pytest.raises(AssertionError, match="from 0 up"):
        weighted_vote_vote([0, 1], [-0.1, 0.2], [True, False], every(2, 1))


def test_random_subsets_come_near_all_of_them():
    stream = np.random.default_rng(2)
    answers, weights = stream.integers(0, 3, 12), stream.random(12)
    right = np.array([True, False, False])
    exact = weighted_vote(answers, weights, right, subsets=every(12, 5))
    drawn = votes.nested_subsets(12, num_draws=4000, seed=0)[:, :5]
    # five standard errors of 4,000 draws are 0.04
    assert weighted_vote(answers, weights, right, subsets=drawn) == pytest.approx(exact, abs=0.04)


def test_every_row_is_an_order_of_all_samples():
    drawn = votes.nested_subsets(7, num_draws=50, seed=3)
    assert (np.sort(drawn, axis=1) == np.arange(7)).all()


def test_every_sample_is_as_likely_among_the_first():
    drawn = votes.nested_subsets(5, num_draws=20_000, seed=0)[:, :2]
    shares = np.bincount(drawn.ravel(), minlength=5) / drawn.size
    assert np.abs(shares - 0.2).max() < 0.01  # five standard errors


def test_they_are_a_function_of_the_seed():
    first = votes.nested_subsets(6, num_draws=9, seed=1)
    assert (first == votes.nested_subsets(6, num_draws=9, seed=1)).all()
    assert (first != votes.nested_subsets(6, num_draws=9, seed=2)).any()
