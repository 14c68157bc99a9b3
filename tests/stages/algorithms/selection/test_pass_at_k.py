import itertools

import pytest

from stages.algorithms.selection.pass_at_k import pass_at_k


def test_half_of_the_pairs_of_four_hold_the_one_right_sample():
    assert pass_at_k(4, 1, k=2) == 0.5


@pytest.mark.parametrize("num_samples", [1, 2, 5, 7])
def test_it_is_the_share_of_subsets_with_a_right_sample(num_samples):
    for num_correct, k in itertools.product(range(num_samples + 1), range(1, num_samples + 1)):
        right = [i < num_correct for i in range(num_samples)]
        subsets = list(itertools.combinations(right, k))
        expected = sum(any(subset) for subset in subsets) / len(subsets)
        assert pass_at_k(num_samples, num_correct, k=k) == pytest.approx(expected, abs=1e-12)


def test_none_right_is_zero_and_too_few_wrong_is_one():
    assert pass_at_k(16, 0, k=16) == 0.0
    assert pass_at_k(16, 13, k=4) == 1.0


def test_a_large_pool_does_not_overflow():
    assert pass_at_k(2000, 1, k=1000) == pytest.approx(0.5, abs=1e-12)


def test_more_draws_than_samples_are_refused():
    with pytest.raises(AssertionError):
        pass_at_k(4, 1, k=5)
