"""Repeated n-grams."""

import pytest

from stages.algorithms.repeated_share import repeated_share


@pytest.mark.parametrize(
    ("tokens", "n", "share"),
    [
        ([1, 2, 3, 4], 2, 0.0),
        ([1, 1, 1, 1, 1], 2, 3 / 4),  # of four pairs one is new
        ([1, 2, 1, 2, 1], 2, 2 / 4),
        ([1, 2, 3], 3, 0.0),
        ([1, 2], 3, 0.0),
        ([], 1, 0.0),
    ],
)
def test_by_hand(tokens, n, share):
    assert repeated_share(tokens, n) == pytest.approx(share)
