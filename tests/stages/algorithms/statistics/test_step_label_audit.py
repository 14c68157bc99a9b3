"""Labels from fewer completions, against every subset written out."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.algorithms.selection.best_of_n import pass_at_k
from stages.algorithms.statistics.step_label_audit import (
    first_error_probability,
    min_right,
    wrong_probability,
)


@pytest.mark.parametrize(
    ("threshold", "k", "expected"),
    [(0.0, 8, 1), (0.5, 1, 1), (0.5, 4, 2), (0.5, 5, 3), (0.1, 10, 1), (0.3, 10, 3), (1.0, 4, 4)],
)
def test_the_fewest_right_completions(threshold, k, expected):
    assert min_right(threshold, k) == expected


def test_worked_by_hand():
    assert wrong_probability(1, 4, subset_size=2, needed=1) == 0.5
    # 2 of 4 right, pairs of them: one pair of 6 is both right
    assert wrong_probability(2, 4, subset_size=2, needed=2) == pytest.approx(5 / 6)
    assert wrong_probability(0, 4, subset_size=1, needed=1) == 1.0
    assert wrong_probability(4, 4, subset_size=3, needed=3) == 0.0
    assert wrong_probability(2, 4, subset_size=4, needed=2) == 0.0
    assert wrong_probability(2, 4, subset_size=4, needed=3) == 1.0


@given(st.integers(1, 7), st.data())
def test_it_is_the_mean_over_all_subsets(num, data):
    outcomes = data.draw(st.lists(st.booleans(), min_size=num, max_size=num))
    k = data.draw(st.integers(1, num))
    needed = data.draw(st.integers(1, k))
    subsets = list(itertools.combinations(outcomes, k))
    expected = sum(sum(one) < needed for one in subsets) / len(subsets)
    found = wrong_probability(sum(outcomes), num, subset_size=k, needed=needed)
    assert found == pytest.approx(expected)


@given(st.integers(1, 20), st.data())
def test_with_one_needed_it_is_what_pass_at_k_leaves(num, data):
    num_right, k = data.draw(st.integers(0, num)), data.draw(st.integers(1, num))
    found = wrong_probability(num_right, num, subset_size=k, needed=1)
    assert found == pytest.approx(1 - pass_at_k(num, num_right, k=k))


def test_the_first_error_worked_by_hand():
    assert first_error_probability([0.5, 0.2], 0) == 0.5
    assert first_error_probability([0.5, 0.2], 1) == pytest.approx(0.1)
    assert first_error_probability([0.5, 0.2], -1) == pytest.approx(0.4)
    assert first_error_probability([], -1) == 1.0


@given(st.lists(st.floats(0, 1), max_size=6))
def test_the_first_error_is_somewhere_or_nowhere(wrong):
    total = math.fsum(first_error_probability(wrong, first) for first in range(-1, len(wrong)))
    assert total == pytest.approx(1.0)
