import dataclasses

import pytest
from tiny_rollouts import make_pairs

from stages.rewards import label_noise

PAIRS = make_pairs(40, probability=0.9)


def wrong(percent, seed=0, pairs=PAIRS):
    """Numbers of the pairs that were flipped."""
    found = label_noise.flip(pairs, percent, seed)
    return {i for i, pair in enumerate(found) if pair != pairs[i]}


def test_a_flipped_label_is_its_complement_and_nothing_else_changes():
    for before, after in zip(PAIRS, label_noise.flip(PAIRS, 100, seed=0), strict=True):
        assert after == dataclasses.replace(before, probability=1 - 0.9)


@pytest.mark.parametrize(
    ("percent", "number"), [(0, 0), (1, 0), (2, 1), (10, 4), (25, 10), (100, 40)]
)
def test_exactly_that_share_is_flipped(percent, number):
    # 1 % of 40 is 0.4, 2 % are 0.8.
    assert len(wrong(percent)) == number


def test_half_a_pair_is_one():
    assert len(wrong(25, pairs=PAIRS[:2])) == 1


def test_less_noise_is_part_of_more_and_a_seed_is_one_order():
    assert wrong(10) < wrong(25) < wrong(50)
    assert wrong(25) == wrong(25)
    assert wrong(25) != wrong(25, seed=1)


@pytest.mark.parametrize("percent", [-1, 101])
def test_what_is_no_per_cent_is_refused(percent):
    with pytest.raises(ValueError, match=f"0 to 100, found {percent}"):
        label_noise.flip(PAIRS, percent, seed=0)
