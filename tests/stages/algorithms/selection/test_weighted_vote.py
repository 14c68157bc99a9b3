import itertools

import numpy as np
import pytest

from stages.algorithms.selection import subsets
from stages.algorithms.selection.majority_vote import majority_vote
from stages.algorithms.selection.weighted_vote import UNREADABLE, weighted_vote


def every(num_samples: int, n: int) -> np.ndarray:
    return np.array(list(itertools.combinations(range(num_samples), n)))


def vote(answers: list[int], weights: list[float], right: list[bool], chosen: np.ndarray) -> float:
    return weighted_vote(
        np.array(answers, dtype=np.int64),
        np.array(weights, dtype=np.float64),
        np.array(right, dtype=np.bool_),
        subsets=chosen,
    )


def enumerate_vote(answers: list[int], weights: list[float], right: list[bool], n: int) -> float:
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
    assert vote([0, 0, 1], [0.2, 0.3, 0.6], [True, False], every(3, 3)) == 0.0
    # of the three pairs the right answer wins the one without the other answer
    assert vote([0, 0, 1], [0.2, 0.3, 0.6], [True, False], every(3, 2)) == pytest.approx(1 / 3)


def test_it_equals_the_enumeration_of_all_subsets():
    stream = np.random.default_rng(0)
    for _ in range(40):
        num_samples = int(stream.integers(1, 8))
        answers = stream.integers(-1, 3, num_samples).tolist()
        weights = (stream.integers(0, 4, num_samples) / 1000 * 100).tolist()  # ties, and zeros
        right = [True, False, bool(stream.integers(2))]
        for n in range(1, num_samples + 1):
            found = vote(answers, weights, right, every(num_samples, n))
            assert found == pytest.approx(enumerate_vote(answers, weights, right, n), abs=1e-12)


def test_with_equal_weights_it_is_the_majority():
    answers = [0, 0, 0, 1, 1, 2, UNREADABLE]
    for n in range(1, 8):
        (expected,) = majority_vote(
            np.array([3, 2, 1]), np.array([True, False, False]), num_unreadable=1, ns=[n]
        )
        found = vote(answers, [0.7] * 7, [True, False, False], every(7, n))
        assert found == pytest.approx(float(expected), abs=1e-12)


def test_nobody_with_an_answer_is_wrong():
    assert vote([UNREADABLE] * 3, [1.0] * 3, [True], every(3, 2)) == 0.0
    assert vote([UNREADABLE] * 3, [1.0] * 3, [], every(3, 2)) == 0.0


def test_scaling_the_weights_changes_nothing():
    stream = np.random.default_rng(1)
    answers, weights = stream.integers(0, 3, 9), stream.random(9)
    right = np.array([True, False, False])
    chosen = every(9, 4)
    expected = weighted_vote(answers, weights, right, subsets=chosen)
    assert weighted_vote(answers, 3.7 * weights, right, subsets=chosen) == expected


def test_a_negative_weight_is_refused():
    with pytest.raises(AssertionError, match="from 0 up"):
        vote([0, 1], [-0.1, 0.2], [True, False], every(2, 1))


def test_random_subsets_come_near_all_of_them():
    stream = np.random.default_rng(2)
    answers, weights = stream.integers(0, 3, 12), stream.random(12)
    right = np.array([True, False, False])
    exact = weighted_vote(answers, weights, right, subsets=every(12, 5))
    drawn = subsets.nested(12, num_draws=4000, seed=0)[:, :5]
    # five standard errors of 4,000 draws are 0.04
    assert weighted_vote(answers, weights, right, subsets=drawn) == pytest.approx(exact, abs=0.04)
