import numpy as np
import pytest

from stages.algorithms.statistics import judge_agreement

# A right: true in both orders; wrong in both; only when first; undecided in one order.
P12 = np.array([0.9, 0.2, 0.8, 0.5])
P21 = np.array([0.3, 0.7, 0.6, 0.1])
A_IS_BETTER = np.array([True, True, True, True])


def test_reading_once_is_right_as_often_as_the_orders_are_on_average():
    # order A,B: 1, 0, 1, 1/2; order B,A: 1, 0, 0, 1
    found = judge_agreement.single_order_right(P12, P21, A_IS_BETTER)
    assert found.tolist() == [1.0, 0.0, 0.5, 0.75]


def test_the_truth_decides_which_side_is_right():
    soft = np.array([0.8, 0.8, 0.5])
    assert judge_agreement.right(soft, np.array([True, False, True])).tolist() == [1.0, 0.0, 0.5]


def test_a_judge_that_always_takes_the_first_has_rate_one_and_a_fair_one_a_half():
    always = np.array([0.9, 0.6])
    assert judge_agreement.first_position(always, always).tolist() == [1.0, 1.0]
    assert judge_agreement.first_position(np.array([0.9]), np.array([0.1])).tolist() == [0.5]
    assert judge_agreement.first_position(np.array([0.5]), np.array([0.1])).tolist() == [0.25]


def test_averaging_saves_a_judge_whose_position_bias_is_larger_than_its_knowledge():
    # 0.1 of knowledge for A, 0.3 of favour for the first place
    p12, p21, better = np.array([0.9]), np.array([0.7]), np.array([True])
    assert judge_agreement.single_order_right(p12, p21, better).tolist() == [0.5]
    assert judge_agreement.right((p12 + 1 - p21) / 2, better).tolist() == [1.0]


def test_pairs_of_a_problem_count_together():
    values = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    found = judge_agreement.by_problem(["b", "a", "b"], values)
    assert found.tolist() == [[1.0, 0.5], [0.0, 1.0]]


def test_kappa_by_hand():
    # 6 of 8 agree; the judge says A 4 of 8 times, the truth 4 of 8: expected 1/2
    judge = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    truth = np.array([True, True, True, True, False, False, False, False])
    assert judge_agreement.cohens_kappa(judge, truth) == pytest.approx(0.5)
    assert judge_agreement.cohens_kappa(truth.astype(float), truth) == pytest.approx(1.0)


def test_a_judge_that_always_says_a_agrees_by_chance_alone():
    truth = np.array([True, True, True, False])
    assert judge_agreement.cohens_kappa(np.ones(4), truth) == pytest.approx(0.0)
    assert judge_agreement.cohens_kappa(np.ones(2), np.array([True, True])) == 0.0
