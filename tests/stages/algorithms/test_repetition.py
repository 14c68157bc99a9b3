import itertools

import pytest

from stages.algorithms import repetition
from stages.algorithms.repetition import repeated_share


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


def brute(tokens):
    runs = [
        length
        for length in range(1, len(tokens))
        for a, b in itertools.combinations(range(len(tokens) - length + 1), 2)
        if tokens[a : a + length] == tokens[b : b + length]
    ]
    return max(runs, default=0)


@pytest.mark.parametrize("tokens", [(), (1,), (1, 2), (1, 1), (1, 1, 1), (1, 2, 3, 1, 2)])
def test_the_longest_repeat_by_hand_and_by_trying_all(tokens):
    assert repetition.longest_repeat(tokens) == brute(tokens)


def test_the_longest_repeat_of_every_short_sequence():
    for tokens in itertools.product(range(3), repeat=6):
        assert repetition.longest_repeat(tokens) == brute(tokens), tokens


def test_what_repeats_is_compressed_and_what_does_not_is_not():
    assert repetition.compression_ratio("") == 0
    assert repetition.compression_ratio("ab" * 500) < 0.05
    assert repetition.compression_ratio("x7q") > 1


def test_a_loop_is_three_rounds_at_the_end():
    assert repetition.ends_in_loop([9, 1, 2, 1, 2, 1, 2])
    assert not repetition.ends_in_loop([1, 2, 1, 2])
    assert not repetition.ends_in_loop([1, 2, 1, 2, 1, 2, 9])
    assert repetition.ends_in_loop([5, 5, 5])
    assert not repetition.ends_in_loop([])
