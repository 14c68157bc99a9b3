import math

import numpy as np
import pytest

from stages.algorithms import judge_readings
from stages.algorithms.judge_readings import option_probabilities


def test_the_variants_of_an_option_are_summed_before_the_options_are_compared():
    # "1": 0.2 + 0.1, "2": 0.1; 0.4 of the mass is on the options
    probabilities, mass = option_probabilities([[math.log(0.2), math.log(0.1)], [math.log(0.1)]])
    assert probabilities == pytest.approx([0.75, 0.25])
    assert mass == pytest.approx(0.4)


def test_the_ratio_of_tiny_probabilities_is_kept_though_their_mass_is_nothing():
    probabilities, mass = option_probabilities([[-2000.0], [-2000.0 - math.log(3)]])
    assert probabilities == pytest.approx([0.75, 0.25])
    assert mass == 0.0


def test_options_that_are_impossible_are_all_alike_and_weigh_nothing():
    assert option_probabilities([[-math.inf], [-math.inf]]) == ([0.5, 0.5], 0.0)
    assert option_probabilities([[0.0], [-math.inf]]) == ([1.0, 0.0], 1.0)


def test_a_mass_above_one_by_rounding_is_one():
    _, mass = option_probabilities([[math.log(0.5) + 1e-7], [math.log(0.5) + 1e-7]])
    assert mass == 1.0


@pytest.mark.parametrize(
    ("p12", "p21", "label", "gap", "consistent"),
    [
        (0.8, 0.3, 0.75, 0.1, True),  # A wins in both orders
        (0.3, 0.8, 0.25, 0.1, True),  # B wins in both orders
        (0.9, 0.7, 0.6, 0.6, False),  # whoever is first wins
        (0.5, 0.2, 0.65, 0.3, False),  # a tie in one order prefers nobody
        (1.0, 1.0, 0.5, 1.0, False),  # nothing but position
        (1.0, 0.0, 1.0, 0.0, True),
    ],
)
def test_label_gap_and_consistency_by_hand(p12, p21, label, gap, consistent):
    assert judge_readings.soft_label(p12, p21) == pytest.approx(label)
    assert judge_readings.order_gap(p12, p21) == pytest.approx(gap)
    assert judge_readings.orders_agree(p12, p21) is consistent


def test_a_favour_for_one_position_cancels_in_the_label():
    for favour in (-0.2, 0.0, 0.2):
        assert judge_readings.soft_label(0.7 + favour, 0.3 + favour) == pytest.approx(0.7)


def test_swapping_the_names_of_the_answers_turns_the_label_round():
    assert judge_readings.soft_label(0.9, 0.4) == pytest.approx(
        1 - judge_readings.soft_label(0.4, 0.9)
    )
    assert judge_readings.order_gap(0.9, 0.4) == pytest.approx(judge_readings.order_gap(0.4, 0.9))


def test_each_member_meets_the_one_before_and_the_one_after_it():
    assert judge_readings.ring_pairs([0, 0, 0, 0]) == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert judge_readings.ring_pairs([0, 0, 0]) == [(0, 1), (1, 2), (2, 0)]


def test_two_members_are_one_pair():
    assert judge_readings.ring_pairs([5, 5]) == [(0, 1)]


def test_groups_may_stand_mixed_and_differ_in_size():
    assert judge_readings.ring_pairs([1, 0, 1, 0, 1]) == [(0, 2), (2, 4), (4, 0), (1, 3)]
    assert judge_readings.ring_pairs([]) == []


def test_a_group_of_one_is_refused_by_name():
    with pytest.raises(ValueError, match="found 2 alone"):
        judge_readings.ring_pairs([0, 0, 1])


def test_means_by_hand():
    result = judge_readings.ring_means(
        3, [(0, 1), (1, 2), (2, 0)], [(0.8, 0.2), (0.6, 0.4), (0.3, 0.7)]
    )
    assert result == pytest.approx([0.75, 0.4, 0.35])
    assert judge_readings.ring_means(2, [(0, 1)], [(0.9, 0.1)]) == [0.9, 0.1]


# A right: true in both orders; wrong in both; only when first; undecided in one order.
P12 = np.array([0.9, 0.2, 0.8, 0.5])
P21 = np.array([0.3, 0.7, 0.6, 0.1])
A_IS_BETTER = np.array([True, True, True, True])


def test_reading_once_is_right_as_often_as_the_orders_are_on_average():
    # order A,B: 1, 0, 1, 1/2; order B,A: 1, 0, 0, 1
    result = judge_readings.single_order_accuracy(P12, P21, A_IS_BETTER)
    assert result.tolist() == [1.0, 0.0, 0.5, 0.75]


def test_the_truth_decides_which_side_is_right():
    soft = np.array([0.8, 0.8, 0.5])
    assert judge_readings.choice_accuracy(soft, np.array([True, False, True])).tolist() == [
        1.0,
        0.0,
        0.5,
    ]


def test_a_judge_that_always_takes_the_first_has_rate_one_and_a_fair_one_a_half():
    always = np.array([0.9, 0.6])
    assert judge_readings.first_position_share(always, always).tolist() == [1.0, 1.0]
    assert judge_readings.first_position_share(np.array([0.9]), np.array([0.1])).tolist() == [0.5]
    assert judge_readings.first_position_share(np.array([0.5]), np.array([0.1])).tolist() == [0.25]


def test_averaging_saves_a_judge_whose_position_bias_is_larger_than_its_knowledge():
    # 0.1 of knowledge for A, 0.3 of favour for the first place
    p12, p21, better = np.array([0.9]), np.array([0.7]), np.array([True])
    assert judge_readings.single_order_accuracy(p12, p21, better).tolist() == [0.5]
    assert judge_readings.choice_accuracy((p12 + 1 - p21) / 2, better).tolist() == [1.0]
