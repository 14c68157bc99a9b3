import random

import pytest

from stages.algorithms.packing import first_fit_decreasing, token_budget_batches


def test_a_hand_worked_split():
    # Longest first: 5 (index 1), 4 (2), 3 (0), 2 (3). Budget 10: 2 rows x 5 = 10 fits, a third
    # row would make 15; then 3 and 2 make 2 x 3 = 6.
    assert token_budget_batches([3, 5, 4, 2], 10) == [[1, 2], [0, 3]]


def test_a_row_longer_than_the_budget_has_a_batch_of_its_own():
    assert token_budget_batches([3, 50, 4], 10) == [[1], [2, 0]]


def test_equal_lengths_keep_their_order():
    assert token_budget_batches([2, 2, 2], 4) == [[0, 1], [2]]


def test_nothing_gives_no_batch():
    assert token_budget_batches([], 10) == []


@pytest.mark.parametrize("budget", [1, 7, 40, 10_000])
def test_every_row_is_in_one_batch_and_no_batch_of_several_is_over_budget(budget):
    rng = random.Random(0)
    lengths = [rng.randint(1, 20) for _ in range(100)]
    batches = token_budget_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(100))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget


def test_a_hand_worked_packing():
    # Longest first: 6 opens a bin (4 left), 5 another (5 left), 4 goes into the first (0 left),
    # 3 into the second (2 left), 3 opens a third, 2 goes into the second.
    assert first_fit_decreasing([2, 3, 6, 4, 3, 5], 10) == [[2, 3], [5, 1, 0], [4]]


def test_the_first_bin_with_room_is_taken_not_the_last():
    # 7 | 6, then 3 fits both.
    assert first_fit_decreasing([7, 6, 3], 10) == [[0, 2], [1]]


def test_an_item_longer_than_the_capacity_has_a_bin_of_its_own():
    assert first_fit_decreasing([3, 50, 4], 10) == [[1], [2, 0]]
    assert first_fit_decreasing([1, 2], 0) == [[1], [0]]


def test_nothing_needs_no_bin():
    assert first_fit_decreasing([], 10) == []


@pytest.mark.parametrize("capacity", [20, 37, 100])
def test_every_item_is_in_one_bin_that_is_not_over_full_and_none_fits_an_earlier_one(capacity):
    rng = random.Random(0)
    lengths = [rng.randint(1, 20) for _ in range(200)]
    bins = first_fit_decreasing(lengths, capacity)
    assert sorted(index for chosen in bins for index in chosen) == list(range(200))
    sums = [sum(lengths[i] for i in chosen) for chosen in bins]
    assert max(sums) <= capacity
    for number, chosen in enumerate(bins):
        assert all(sums[b] + lengths[i] > capacity for b in range(number) for i in chosen)
    assert len(bins) <= 11 / 9 * -(-sum(lengths) // capacity) + 1
