import math

import pytest

from stages.algorithms.option_probabilities import option_probabilities


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
