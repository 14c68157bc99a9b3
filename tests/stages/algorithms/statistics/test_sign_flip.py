import itertools

import numpy as np
import pytest

from stages.algorithms.statistics import sign_flip


def p_value(differences, num_draws=20_000):
    return sign_flip.p_value(np.array(differences, dtype=float), num_draws=num_draws, seed=0)


@pytest.mark.parametrize("differences", [[1, 1, 1, 1], [1, 1, 1, 1] + [0] * 96, [3, -1, 2, 0.5]])
def test_it_is_the_share_of_all_signs_that_reach_the_sum(differences):
    total = sum(differences)
    signs = list(itertools.product((1, -1), repeat=sum(d != 0 for d in differences)))
    own = [d for d in differences if d]
    exact = np.mean([sum(s * d for s, d in zip(one, own, strict=True)) >= total for one in signs])
    assert p_value(differences) == pytest.approx(exact, abs=0.01)


def test_nothing_differs_and_nothing_is_claimed():
    assert p_value([0, 0, 0]) == 1.0


def test_a_lean_to_the_other_side_is_no_evidence():
    assert p_value([-1] * 20) > 0.99


def test_the_smallest_p_is_one_over_the_draws_and_one():
    assert p_value([1] * 200, num_draws=99) == 0.01
