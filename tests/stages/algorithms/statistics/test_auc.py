import numpy as np
import pytest

from stages.algorithms.statistics.auc import auc


def of(scores, is_right):
    return auc(np.array(scores, dtype=np.float64), np.array(is_right, dtype=np.bool_))


def test_worked_by_hand():
    # right 1, 3; wrong 2, 0: (1>2) 0, (1>0) 1, (3>2) 1, (3>0) 1.
    assert of([1, 3, 2, 0], [1, 1, 0, 0]) == 0.75


def test_a_tie_counts_half():
    assert of([1, 1], [1, 0]) == 0.5
    # right 2; wrong 2, 1, 3: a half, 1, 0.
    assert of([2, 2, 1, 3], [1, 0, 0, 0]) == 0.5


@pytest.mark.parametrize("is_right", [[1, 1], [0, 0]])
def test_a_problem_with_one_class_has_none(is_right):
    assert of([0.0, 1.0], is_right) is None


def test_no_completion_at_all_has_none():
    assert of([], []) is None


def test_turned_scores_give_the_complement_and_a_monotone_transform_the_same():
    stream = np.random.default_rng(0)
    scores, is_right = stream.integers(0, 6, 40), stream.random(40) < 0.4
    found = of(scores, is_right)
    assert of(-scores, is_right) == pytest.approx(1 - found)
    assert of(np.exp(scores), is_right) == found


def test_it_equals_the_comparison_of_all_pairs():
    stream = np.random.default_rng(1)
    scores, is_right = stream.integers(0, 5, 30).astype(float), stream.random(30) < 0.5
    right, wrong = scores[is_right][:, None], scores[~is_right][None]
    assert of(scores, is_right) == pytest.approx(np.mean((right > wrong) + 0.5 * (right == wrong)))


def test_a_score_of_the_problem_alone_has_a_half_where_pooling_would_praise_it():
    easy, hard = [1, 1, 1, 0], [1, 0, 0, 0]
    assert of([1.0] * 4, easy) == of([0.0] * 4, hard) == 0.5
    assert of([1.0] * 4 + [0.0] * 4, easy + hard) == 0.75
