import numpy as np

from stages.algorithms.selection import subsets


def test_every_row_is_an_order_of_all_samples():
    drawn = subsets.nested(7, num_draws=50, seed=3)
    assert (np.sort(drawn, axis=1) == np.arange(7)).all()


def test_every_sample_is_as_likely_among_the_first():
    drawn = subsets.nested(5, num_draws=20_000, seed=0)[:, :2]
    shares = np.bincount(drawn.ravel(), minlength=5) / drawn.size
    assert np.abs(shares - 0.2).max() < 0.01  # five standard errors


def test_they_are_a_function_of_the_seed():
    first = subsets.nested(6, num_draws=9, seed=1)
    assert (first == subsets.nested(6, num_draws=9, seed=1)).all()
    assert (first != subsets.nested(6, num_draws=9, seed=2)).any()
