import itertools

import pytest
from scipy.stats import binomtest

from stages.algorithms.statistics.mcnemar import p_value


def test_the_hand_worked_six():
    assert p_value(1, 5) == 0.21875
    assert p_value(5, 1) == 0.21875


def test_nothing_discordant_and_an_even_split_say_nothing():
    assert p_value(0, 0) == 1.0
    assert p_value(4, 4) == 1.0


def test_it_is_the_share_of_coin_flips_at_least_as_uneven():
    flips = list(itertools.product([0, 1], repeat=9))
    uneven = [abs(2 * sum(flip) - 9) >= abs(2 * 2 - 9) for flip in flips]
    assert p_value(2, 7) == pytest.approx(sum(uneven) / len(flips), abs=1e-15)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (3, 14), (40, 61), (300, 1400)])
def test_it_is_scipys_binomial_test(first, second):
    expected = binomtest(first, first + second).pvalue
    assert p_value(first, second) == pytest.approx(expected, rel=1e-9)
