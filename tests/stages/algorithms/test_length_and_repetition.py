import functools
import itertools

import pytest
import torch

from stages.algorithms import length_and_repetition
from stages.algorithms.length_and_repetition import repeated_share, soft_overlong


def test_hand_worked_numbers():
    # From 100 - 20 = 80 on: (80 - 85) / 20 = -0.25, (80 - 100) / 20 = -1, and no further.
    lengths = torch.tensor([0, 79, 80, 85, 99, 100, 101, 10_000])
    result = soft_overlong(lengths, max_length=100, buffer=20)
    assert result.tolist() == pytest.approx([0.0, 0.0, 0.0, -0.25, -0.95, -1.0, -1.0, -1.0])


def test_a_buffer_of_all_lengths_penalises_from_the_first_token_on():
    result = soft_overlong(torch.tensor([0, 1, 4]), max_length=4, buffer=4)
    assert result.tolist() == [0.0, -0.25, -1.0]


def test_a_longer_completion_is_never_penalised_less():
    result = soft_overlong(torch.arange(200), max_length=100, buffer=37)
    assert (result.diff() <= 0).all()


@pytest.mark.parametrize("buffer", [0, -1, 101])
def test_a_buffer_that_does_not_fit_is_refused(buffer):
    with pytest.raises(ValueError, match="expected a buffer from 1 to max_length 100"):
        soft_overlong(torch.tensor([5]), max_length=100, buffer=buffer)


def test_no_completion_gives_nothing():
    assert soft_overlong(torch.tensor([], dtype=torch.long), max_length=9, buffer=3).shape == (0,)


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
    assert length_and_repetition.longest_repeat(tokens) == brute(tokens)


def test_the_longest_repeat_of_every_short_sequence():
    for tokens in itertools.product(range(3), repeat=6):
        assert length_and_repetition.longest_repeat(tokens) == brute(tokens), tokens


def test_what_repeats_is_compressed_and_what_does_not_is_not():
    assert length_and_repetition.compression_ratio("") == 0
    assert length_and_repetition.compression_ratio("ab" * 500) < 0.05
    assert length_and_repetition.compression_ratio("x7q") > 1


def test_a_loop_is_three_rounds_at_the_end():
    assert length_and_repetition.ends_in_loop([9, 1, 2, 1, 2, 1, 2])
    assert not length_and_repetition.ends_in_loop([1, 2, 1, 2])
    assert not length_and_repetition.ends_in_loop([1, 2, 1, 2, 1, 2, 9])
    assert length_and_repetition.ends_in_loop([5, 5, 5])
    assert not length_and_repetition.ends_in_loop([])


def test_a_loop_of_a_least_length_repeats_with_one_period_all_along():
    loop = functools.partial(length_and_repetition.ends_in_loop, min_length=8)
    assert loop([9, 1, 2, 3, 1, 2, 3, 1, 2, 3]), "three rounds of 3 are 9 tokens"
    assert not loop([9, 9, 9, 9, 1, 2, 1, 2, 1, 2]), "three rounds of 2 are 6"
    assert loop([9, 2, 1, 2, 1, 2, 1, 2, 1]), "four rounds of 2 are 8"
    assert length_and_repetition.ends_in_loop([9, 2, 1, 2, 1, 2, 1, 2], min_length=7), "3.5"
    assert not loop([1, 0, 0, 0]), "1000"
    assert loop([0] * 8)
    assert not loop([0] * 7)
    assert not loop([1, 2, 3, 4, 1, 2, 3, 4]), "two rounds may be chance"
