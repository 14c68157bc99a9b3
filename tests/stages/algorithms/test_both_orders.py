import pytest

from stages.algorithms import both_orders


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
    assert both_orders.soft_label(p12, p21) == pytest.approx(label)
    assert both_orders.gap(p12, p21) == pytest.approx(gap)
    assert both_orders.consistent(p12, p21) is consistent


def test_a_favour_for_one_position_cancels_in_the_label():
    for favour in (-0.2, 0.0, 0.2):
        assert both_orders.soft_label(0.7 + favour, 0.3 + favour) == pytest.approx(0.7)


def test_swapping_the_names_of_the_answers_turns_the_label_round():
    assert both_orders.soft_label(0.9, 0.4) == pytest.approx(1 - both_orders.soft_label(0.4, 0.9))
    assert both_orders.gap(0.9, 0.4) == pytest.approx(both_orders.gap(0.4, 0.9))
